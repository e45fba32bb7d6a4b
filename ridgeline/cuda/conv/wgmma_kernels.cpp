// Convolutions on wgmma (sm_90a), alone and in one span with the pool that follows.
#include "ridgeline/cuda/conv/kernels.h"
#include "ridgeline/cuda/conv/spans.h"
#include "ridgeline/cuda/conv/wgmma.h"
#include "ridgeline/cuda/graph_order.h"

namespace ridgeline::cuda {
namespace {

std::string refuse(const RemainingOps& rest, const ConvProduct& product) {
  std::string reason = refuse_tensor(rest, product.conv, product.shape().n, product.values());
  if (!reason.empty()) return reason;
  return refuse_conv2d_wgmma(product.shape(), size_of(product.dtype()), product.pooled(),
                             shared_memory(rest.runtime));
}

size_t workspace(const Runtime& runtime, const ConvProduct& product) {
  return conv2d_wgmma_workspace(product.shape(), size_of(product.dtype()), product.pooled(),
                                shared_memory(runtime));
}

// A separate part of the step packs the filters; it need not wait for the ops that make x.
std::unique_ptr<Step> prepare(const Binding& binding, const std::string& what,
                              const ConvProduct& product) {
  return dispatch_factor(product.dtype(), [&](auto type) {
    using T = decltype(type);
    const auto arrange = [args = product.args<T>(binding), pooled = product.pooled(),
                          memory = shared_memory(binding.runtime()),
                          packed_filters = binding.workspace()](cudaStream_t stream) {
      return launch_conv2d_wgmma_pack_filters<T>(args, pooled, memory, packed_filters, stream);
    };
    const auto multiply = [args = product.args<T>(binding), pool = product.pool<T>(binding),
                           memory = shared_memory(binding.runtime()),
                           packed_filters = binding.workspace()](cudaStream_t stream) {
      return launch_conv2d_wgmma<T>(args, pool, memory, packed_filters, stream);
    };
    return launch_in_order(binding, what, workspace(binding.runtime(), product),
                           {{product.w}, {}, {}, false, arrange},
                           {{product.x, product.b}, product.writes(), {}, false, multiply});
  });
}

}  // namespace

KernelTable wgmma_conv_kernels() {
  return concurrent(with_traits(kWgmma, product_kernels("wgmma", {refuse, workspace, prepare})));
}

}  // namespace ridgeline::cuda
