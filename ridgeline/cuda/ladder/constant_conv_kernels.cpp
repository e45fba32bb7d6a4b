#include "ridgeline/cuda/ladder/constant_conv_kernels.h"

#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/ladder/constant_conv.h"
#include "ridgeline/cuda/plain/geometry.h"

namespace ridgeline::cuda {
namespace {

Cover covers_constant(const RemainingOps& rest) {
  const auto* op = rest.get<Conv2d>(0);
  if (op == nullptr) return no_such_op(Conv2d::kName);
  std::string reason = refuse_floats({op->x, op->w, op->b, op->y});
  if (op->x.dtype != DType::fp32) reason = "takes fp32 only";
  if (op->shape.groups != 1) reason = "takes one group";
  if (reason.empty()) reason = refuse_large({op->n(), op->shape.in.numel(), op->y.shape.numel()});
  if (reason.empty()) reason = refuse_conv2d_constant(geometry_of(op->shape, op->n()));
  return cover_unless(reason, 1);
}

std::unique_ptr<Step> prepare_constant(const Span& span, const Binding& binding) {
  const auto& op = span.get<Conv2d>(0);
  return launch_step(binding, describe(span.op(0)),
                     [g = geometry_of(op.shape, op.n()), x = binding.read(op.x).as<float>(),
                      w = binding.read(op.w).as<float>(), b = binding.read(op.b).as<float>(),
                      y = binding.write(op.y).as<float>()](cudaStream_t stream) {
                       return launch_conv2d_constant(g, x, w, b, y, stream);
                     });
}

}  // namespace

KernelTable constant_conv_kernels() {
  return {cuda_kernel("cuda.conv2d.constant", covers_constant, prepare_constant,
                      {.precisions = kStoredInFp32, .demonstration = true})};
}

}  // namespace ridgeline::cuda
