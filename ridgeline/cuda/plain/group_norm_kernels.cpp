#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/bind_mixed_operand.h"
#include "ridgeline/cuda/plain/group_norm.h"
#include "ridgeline/cuda/plain/kernels.h"

namespace ridgeline::cuda {
namespace {

// Statistics are fp64 if the values are fp64, and fp32 for all narrower values.
template <typename Op>
std::string refuse(const Op& op, const Values& values) {
  std::string reason = refuse_floats(values);
  const DType wanted = op.x.dtype == DType::fp64 ? DType::fp64 : DType::fp32;
  for (const Value& value : {op.mean, op.rstd}) {
    if (value && value.dtype != wanted) reason = "takes statistics in the accumulator dtype only";
  }
  return reason.empty() ? refuse_large({op.runs(), op.groups, op.width}) : reason;
}

template <typename Op>
GroupNormShape shape_of(const Op& op) {
  return {op.runs(), int(op.groups), int(op.width), int(op.spatial), op.centred};
}

Cover covers_norm(const RemainingOps& rest) {
  const auto* op = rest.get<GroupNorm>(0);
  if (op == nullptr) return no_such_op(GroupNorm::kName);
  const DType dtype = op->x.dtype;
  return cover_unless(
      refuse(*op, {op->x, unless_mixed(op->gamma, dtype), unless_mixed(op->beta, dtype), op->y}),
      1);
}

std::unique_ptr<Step> prepare_norm(const Span& span, const Binding& binding) {
  const auto& op = span.get<GroupNorm>(0);
  return dispatch_device_float(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    using A = Accumulated<T>;
    const GroupNormArgs<T> args{shape_of(op),
                                binding.read(op.x).as<T>(),
                                read_mixed<T>(binding, op.gamma, op.x.dtype),
                                read_mixed<T>(binding, op.beta, op.x.dtype),
                                binding.write(op.y).as<T>(),
                                binding.write(op.mean).as<A>(),
                                binding.write(op.rstd).as<A>(),
                                op.epsilon};
    return launch_step(binding, describe(span.op(0)),
                       [args](cudaStream_t stream) { return launch_group_norm<T>(args, stream); });
  });
}

Cover covers_grad(const RemainingOps& rest) {
  const auto* op = rest.get<GroupNormGrad>(0);
  if (op == nullptr) return no_such_op(GroupNormGrad::kName);
  const DType dtype = op->x.dtype;
  return cover_unless(
      refuse(*op, {op->x, unless_mixed(op->gamma, dtype), op->dy, op->dx,
                   unless_mixed(op->dgamma, dtype), unless_mixed(op->dbeta, dtype)}),
      1);
}

std::unique_ptr<Step> prepare_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<GroupNormGrad>(0);
  return dispatch_device_float(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    using A = Accumulated<T>;
    const GroupNormGradArgs<T> args{shape_of(op),
                                    binding.read(op.x).as<T>(),
                                    binding.read(op.dy).as<T>(),
                                    read_mixed<T>(binding, op.gamma, op.x.dtype),
                                    binding.read(op.mean).as<A>(),
                                    binding.read(op.rstd).as<A>(),
                                    binding.write(op.dx).as<T>(),
                                    write_mixed<T>(binding, op.dgamma, op.x.dtype),
                                    write_mixed<T>(binding, op.dbeta, op.x.dtype)};
    return launch_step(binding, describe(span.op(0)), [args](cudaStream_t stream) {
      return launch_group_norm_grad<T>(args, stream);
    });
  });
}

}  // namespace

KernelTable plain_group_norm_kernels() {
  return concurrent({cuda_kernel("cuda.group_norm.plain", covers_norm, prepare_norm),
                     cuda_kernel("cuda.group_norm_grad.plain", covers_grad, prepare_grad)});
}

}  // namespace ridgeline::cuda
