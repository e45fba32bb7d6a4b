// Convolutions in fp32 multiply-adds, alone and in one span with the pool that follows.
#include "ridgeline/cuda/conv/strips.h"
#include "ridgeline/cuda/conv_rows.h"
#include "ridgeline/cuda/conv_spans.h"
#include "ridgeline/cuda/graph_order.h"

namespace ridgeline::cuda {
namespace {

std::string refuse(const Rest& rest, const ConvProduct& product) {
  const Conv2dShape& conv = product.conv;
  if (product.dtype() != DType::fp32) return "takes fp32 only";
  if (cuda_runtime(rest.runtime).architecture() < 80) return "needs sm_80 or later";
  std::string reason = refuse_window(conv);
  if (reason.empty()) reason = refuse_floats(product.values());
  if (reason.empty()) {
    reason = refuse_large(
        {product.x.shape[0], conv.in.numel(), conv.out().numel(), conv.weight().numel()});
  }
  if (!reason.empty()) return reason;
  return refuse_conv2d_strips(product.shape(), shared_memory(rest.runtime));
}

size_t workspace(const Runtime& runtime, const ConvProduct& product) {
  return conv2d_strips_workspace(product.shape(), shared_memory(runtime));
}

// The filters are arranged by a piece of their own, which need not wait for what x is made of.
std::unique_ptr<Step> prepare(const Binding& binding, const std::string& what,
                              const ConvProduct& product) {
  const auto args = product.args<float>(binding);
  const size_t memory = shared_memory(binding.runtime());
  auto* words = reinterpret_cast<float*>(binding.workspace());
  const auto arrange = [=](cudaStream_t stream) {
    return launch_conv2d_strips_words(args, memory, words, stream);
  };
  const auto multiply = [=, pool = product.pool<float>(binding)](cudaStream_t stream) {
    return launch_conv2d_strips(args, pool, memory, words, stream);
  };
  return launch_in_turn(binding, what, workspace(binding.runtime(), product),
                        {{product.w}, {}, {}, false, arrange},
                        {{product.x, product.b}, product.writes(), {}, false, multiply});
}

}  // namespace

Table strip_conv_rows() { return product_rows("strips", {refuse, workspace, prepare}); }

}  // namespace ridgeline::cuda
