#include "ridgeline/cuda/plain/linear_spans.h"
#include "ridgeline/cuda/tile/kernels.h"
#include "ridgeline/cuda/tile/linear_split.h"
#include "ridgeline/plan/linear_activation.h"

namespace ridgeline::cuda {
namespace {

Cover cover_split(const RemainingOps& rest, const Linear& op, const Values& values, size_t ops) {
  if (values[0].dtype != DType::fp32) return Cover::no("takes fp32 only");
  std::string reason = refuse_floats(values);
  if (reason.empty()) reason = refuse_large({op.n(), op.in(), op.out()});
  if (!reason.empty()) return Cover::no(reason);
  const int sms = cuda_runtime(rest.runtime).sms();
  return cover_unless(refuse_linear_split(op.n(), op.in(), op.out(), sms), ops,
                      linear_split_workspace(op.n(), op.in(), op.out(), sms));
}

Cover covers_split(const RemainingOps& rest) {
  const auto* op = rest.get<Linear>(0);
  if (op == nullptr) return no_such_op(Linear::kName);
  return cover_split(rest, *op, {op->x, op->w, op->b, op->y}, 1);
}

Cover covers_split_activation(const RemainingOps& rest) {
  return cover_linear_activation(rest, [&](const Linear& op, const Activation& f) {
    if (!has_activation_fn(f.kind)) return Cover::no(kNoActivationFn);
    return cover_split(rest, op, {op.x, op.w, op.b, f.y}, 2);
  });
}

std::unique_ptr<Step> prepare_split(const Span& span, const Binding& binding) {
  return launch_step(
      binding, describe(span.op(0)),
      [args = linear_args<float>(span, binding), sms = cuda_runtime(binding.runtime()).sms(),
       parts = reinterpret_cast<float*>(binding.workspace())](cudaStream_t stream) {
        return launch_linear_split(args, sms, parts, stream);
      });
}

}  // namespace

KernelTable linear_split_kernels() {
  return concurrent(with_traits(
      {.precisions = kStoredInFp32, .least_arch = 90},
      {cuda_kernel("cuda.linear_activation.split", covers_split_activation, prepare_split),
       cuda_kernel("cuda.linear.split", covers_split, prepare_split)}));
}

}  // namespace ridgeline::cuda
