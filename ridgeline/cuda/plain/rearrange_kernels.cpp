#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/kernels.h"
#include "ridgeline/cuda/plain/rearrange.h"

namespace ridgeline::cuda {
namespace {

static_assert(TransposeShape::kAxes == Transpose::kAxes);

// Why an op that reads one value and writes one is not taken; "" if it is.
std::string refuse(const Value& from, const Value& to) {
  if (from.shape.numel() == 0 || to.shape.numel() == 0) return "an operand is empty";
  return refuse_floats({from, to});
}

Cover covers_pad(const RemainingOps& rest) {
  const auto* op = rest.get<Pad>(0);
  return op == nullptr ? no_such_op(Pad::kName) : cover_unless(refuse(op->x, op->y), 1);
}

std::unique_ptr<Step> prepare_pad(const Span& span, const Binding& binding) {
  const auto& op = span.get<Pad>(0);
  PadShape shape{};
  shape.n = op.n();
  shape.value = op.value;
  for (size_t axis = 0; axis < 3; ++axis) {
    shape.in[axis] = op.in[axis];
    shape.out[axis] = op.out[axis];
    shape.before[axis] = op.before[axis];
  }
  return dispatch_device_float(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(binding, describe(span.op(0)),
                       [shape, x = binding.read(op.x).as<T>(), y = binding.write(op.y).as<T>()](
                           cudaStream_t stream) { return launch_pad<T>(shape, x, y, stream); });
  });
}

Cover covers_transpose(const RemainingOps& rest) {
  const auto* op = rest.get<Transpose>(0);
  return op == nullptr ? no_such_op(Transpose::kName) : cover_unless(refuse(op->x, op->y), 1);
}

std::unique_ptr<Step> prepare_transpose(const Span& span, const Binding& binding) {
  const auto& op = span.get<Transpose>(0);
  TransposeShape shape{};
  shape.axes = op.in.rank();
  shape.n = op.n();
  shape.sample = op.in.numel();
  for (int a = 0; a < shape.axes; ++a) {
    shape.extent[a] = op.extent(a);
    shape.stride[a] = op.stride(a);
  }
  return dispatch_device_float(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(
        binding, describe(span.op(0)),
        [shape, x = binding.read(op.x).as<T>(), y = binding.write(op.y).as<T>()](
            cudaStream_t stream) { return launch_transpose<T>(shape, x, y, stream); });
  });
}

UpsampleSize size_of(int64_t n, const UpsampleShape& shape) {
  return {n * shape.in.c, shape.in.h,     shape.in.w,
          shape.factor_h, shape.factor_w, shape.mode == UpsampleMode::bilinear};
}

Cover covers_upsample(const RemainingOps& rest) {
  const auto* op = rest.get<Upsample>(0);
  return op == nullptr ? no_such_op(Upsample::kName) : cover_unless(refuse(op->x, op->y), 1);
}

std::unique_ptr<Step> prepare_upsample(const Span& span, const Binding& binding) {
  const auto& op = span.get<Upsample>(0);
  return dispatch_device_float(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(binding, describe(span.op(0)),
                       [size = size_of(op.n(), op.shape), x = binding.read(op.x).as<T>(),
                        y = binding.write(op.y).as<T>()](cudaStream_t stream) {
                         return launch_upsample<T>(size, x, y, stream);
                       });
  });
}

Cover covers_upsample_grad(const RemainingOps& rest) {
  const auto* op = rest.get<UpsampleGrad>(0);
  if (op == nullptr) return no_such_op(UpsampleGrad::kName);
  return cover_unless(refuse(op->dy, op->dx), 1);
}

std::unique_ptr<Step> prepare_upsample_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<UpsampleGrad>(0);
  return dispatch_device_float(op.dx.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(binding, describe(span.op(0)),
                       [size = size_of(op.n(), op.shape), dy = binding.read(op.dy).as<T>(),
                        dx = binding.write(op.dx).as<T>()](cudaStream_t stream) {
                         return launch_upsample_grad<T>(size, dy, dx, stream);
                       });
  });
}

}  // namespace

KernelTable plain_rearrange_kernels() {
  return concurrent(
      {cuda_kernel("cuda.pad.plain", covers_pad, prepare_pad),
       cuda_kernel("cuda.transpose.plain", covers_transpose, prepare_transpose),
       cuda_kernel("cuda.upsample.plain", covers_upsample, prepare_upsample),
       cuda_kernel("cuda.upsample_grad.plain", covers_upsample_grad, prepare_upsample_grad)});
}

}  // namespace ridgeline::cuda
