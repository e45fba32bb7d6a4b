#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/bind_mixed_operand.h"
#include "ridgeline/cuda/plain/conv.h"
#include "ridgeline/cuda/plain/geometry.h"
#include "ridgeline/cuda/plain/kernels.h"

namespace ridgeline::cuda {
namespace {

std::string refuse(const Conv2dShape& shape, int64_t n, const Values& values) {
  std::string reason = refuse_floats(values);
  if (reason.empty()) {
    reason = refuse_large({n, shape.in.numel(), shape.out().numel(), shape.weight().numel()});
  }
  return reason;
}

Cover covers_conv(const RemainingOps& rest) {
  const auto* op = rest.get<Conv2d>(0);
  if (op == nullptr) return no_such_op(Conv2d::kName);
  return cover_unless(
      refuse(op->shape, op->n(), {op->x, op->w, unless_mixed(op->b, op->x.dtype), op->y}), 1);
}

std::unique_ptr<Step> prepare_conv(const Span& span, const Binding& binding) {
  const auto& op = span.get<Conv2d>(0);
  return dispatch_device_float(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(
        binding, describe(span.op(0)),
        [g = geometry_of(op.shape, op.n()), x = binding.read(op.x).as<T>(),
         w = binding.read(op.w).as<T>(), b = read_mixed<T>(binding, op.b, op.x.dtype),
         y = binding.write(op.y).as<T>()](cudaStream_t stream) {
          return launch_conv2d<T>(g, x, w, b, y, stream);
        });
  });
}

Cover covers_grad_x(const RemainingOps& rest) {
  const auto* op = rest.get<Conv2dGradX>(0);
  if (op == nullptr) return no_such_op(Conv2dGradX::kName);
  return cover_unless(refuse(op->shape, op->n(), {op->dy, op->w, op->dx}), 1);
}

std::unique_ptr<Step> prepare_grad_x(const Span& span, const Binding& binding) {
  const auto& op = span.get<Conv2dGradX>(0);
  return dispatch_device_float(op.dx.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(
        binding, describe(span.op(0)),
        [g = geometry_of(op.shape, op.n()), dy = binding.read(op.dy).as<T>(),
         w = binding.read(op.w).as<T>(), dx = binding.write(op.dx).as<T>()](cudaStream_t stream) {
          return launch_conv2d_grad_x<T>(g, dy, w, dx, stream);
        });
  });
}

Cover covers_grad_w(const RemainingOps& rest) {
  const auto* op = rest.get<Conv2dGradW>(0);
  if (op == nullptr) return no_such_op(Conv2dGradW::kName);
  return cover_unless(
      refuse(op->shape, op->n(),
             {op->x, op->dy, unless_mixed(op->dw, op->x.dtype), unless_mixed(op->db, op->x.dtype)}),
      1);
}

std::unique_ptr<Step> prepare_grad_w(const Span& span, const Binding& binding) {
  const auto& op = span.get<Conv2dGradW>(0);
  return dispatch_device_float(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(
        binding, describe(span.op(0)),
        [g = geometry_of(op.shape, op.n()), x = binding.read(op.x).as<T>(),
         dy = binding.read(op.dy).as<T>(), dw = write_mixed<T>(binding, op.dw, op.x.dtype),
         db = write_mixed<T>(binding, op.db, op.x.dtype)](cudaStream_t stream) {
          return launch_conv2d_grad_w<T>(g, x, dy, dw, db, stream);
        });
  });
}

}  // namespace

KernelTable plain_conv_kernels() {
  return concurrent({cuda_kernel("cuda.conv2d.plain", covers_conv, prepare_conv),
                     cuda_kernel("cuda.conv2d_grad_x.plain", covers_grad_x, prepare_grad_x),
                     cuda_kernel("cuda.conv2d_grad_w.plain", covers_grad_w, prepare_grad_w)});
}

}  // namespace ridgeline::cuda
