// Convolutions on Hopper's warpgroup products, alone and in one span with the pool that follows.
#include "ridgeline/cuda/conv/rows.h"
#include "ridgeline/cuda/conv/spans.h"
#include "ridgeline/cuda/conv/wgmma.h"
#include "ridgeline/cuda/graph_order.h"

namespace ridgeline::cuda {
namespace {

std::string refuse(const Rest& rest, const ConvProduct& product) {
  std::string reason = refuse_tensor(rest, product.conv, product.shape().n, product.values());
  if (!reason.empty()) return reason;
  if (cuda_runtime(rest.runtime).architecture() != 90) return "built for sm_90a";
  return refuse_conv2d_wgmma(product.shape(), size_of(product.dtype()), product.pooled(),
                             shared_memory(rest.runtime));
}

size_t workspace(const Runtime& runtime, const ConvProduct& product) {
  return conv2d_wgmma_workspace(product.shape(), size_of(product.dtype()), product.pooled(),
                                shared_memory(runtime));
}

// The filters are arranged by a piece of their own, which need not wait for what x is made of.
std::unique_ptr<Step> prepare(const Binding& binding, const std::string& what,
                              const ConvProduct& product) {
  return dispatch_factor(product.dtype(), [&](auto type) {
    using T = decltype(type);
    const auto arrange = [args = product.args<T>(binding), pooled = product.pooled(),
                          memory = shared_memory(binding.runtime()),
                          words = binding.workspace()](cudaStream_t stream) {
      return launch_conv2d_wgmma_words<T>(args, pooled, memory, words, stream);
    };
    const auto multiply = [args = product.args<T>(binding), pool = product.pool<T>(binding),
                           memory = shared_memory(binding.runtime()),
                           words = binding.workspace()](cudaStream_t stream) {
      return launch_conv2d_wgmma<T>(args, pool, memory, words, stream);
    };
    return launch_in_turn(binding, what, workspace(binding.runtime(), product),
                          {{product.w}, {}, {}, false, arrange},
                          {{product.x, product.b}, product.writes(), {}, false, multiply});
  });
}

}  // namespace

Table wgmma_conv_rows() { return product_rows("wgmma", {refuse, workspace, prepare}); }

}  // namespace ridgeline::cuda
