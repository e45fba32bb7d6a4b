#include "ridgeline/cuda/recurrent/kernels.h"
#include "ridgeline/cuda/recurrent/split_k_operands.h"

namespace ridgeline::cuda {
namespace {

using namespace recurrent;

Cover covers(const RemainingOps& rest) {
  const auto* op = rest.get<RnnGradW>(0);
  if (op == nullptr) return no_such_op(RnnGradW::kName);
  return cover_unless(refuse_split_k(*op), 1);
}

// One direction.
template <typename T>
struct Launch {
  SplitKWeights<T> args;
  cudaError_t run(cudaStream_t stream) const { return launch_split_k_weights(args, stream); }
};

std::unique_ptr<Step> prepare(const Span& span, const Binding& binding) {
  const auto& op = span.get<RnnGradW>(0);
  return dispatch_type(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    return directions_step(span, binding, op.shape,
                           [&](int64_t d) { return Launch<T>{split_k_args<T>(op, d, binding)}; });
  });
}

}  // namespace

KernelTable rnn_split_k_kernels() {
  return {cuda_kernel("cuda.rnn_grad_w.split_k", covers, prepare,
                      {.precisions = kPassPrecisions, .least_arch = 90, .only_arch = true})};
}

}  // namespace ridgeline::cuda
