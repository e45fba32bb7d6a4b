#include "ridgeline/cuda/conv/implicit.h"
#include "ridgeline/cuda/conv_rows.h"
#include "ridgeline/cuda/conv_spans.h"
#include "ridgeline/cuda/plain/loose_bind.h"
#include "ridgeline/cuda/row.h"

namespace ridgeline::cuda {
namespace {

Cover cover_product(const Rest& rest, const ImplicitShape& shape, DType dtype, std::string reason) {
  const size_t width = size_of(dtype);
  if (reason.empty()) reason = refuse_implicit(shape, width, shared_memory(rest.runtime));
  if (!reason.empty()) return Cover::no(reason);
  return cover_unless({}, 1, implicit_workspace(shape, width));
}

template <typename T>
std::unique_ptr<Step> implicit_step(const Span& span, const Binding& binding,
                                    const ImplicitArgs<T>& args) {
  return launch_step(binding, describe(span.op(0)),
                     [args, workspace = binding.workspace()](cudaStream_t stream) {
                       return launch_conv2d_implicit<T>(args, {}, workspace, stream);
                     });
}

Cover covers_conv(const Rest& rest) {
  const auto* op = rest.get<Conv2d>(0);
  if (op == nullptr) return no_such_op(Conv2d::kName);
  const DType dtype = op->x.dtype;
  return cover_product(
      rest, implicit_shape(op->shape, op->n()), dtype,
      refuse_tensor(rest, op->shape, op->n(), {op->x, op->w, unless_loose(op->b, dtype), op->y}));
}

std::unique_ptr<Step> prepare_conv(const Span& span, const Binding& binding) {
  const auto& op = span.get<Conv2d>(0);
  return dispatch_factor(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    return implicit_step<T>(
        span, binding,
        {implicit_shape(op.shape, op.n()), binding.read(op.x).as<T>(), binding.read(op.w).as<T>(),
         loose_read<T>(binding, op.b, op.x.dtype), binding.write(op.y).as<T>(), false});
  });
}

Cover covers_grad_x(const Rest& rest) {
  const auto* op = rest.get<Conv2dGradX>(0);
  if (op == nullptr) return no_such_op(Conv2dGradX::kName);
  return cover_product(rest, implicit_shape(op->shape, op->n()).turned(), op->dy.dtype,
                       refuse_tensor(rest, op->shape, op->n(), {op->dy, op->w, op->dx}));
}

std::unique_ptr<Step> prepare_grad_x(const Span& span, const Binding& binding) {
  const auto& op = span.get<Conv2dGradX>(0);
  return dispatch_factor(op.dy.dtype, [&](auto type) {
    using T = decltype(type);
    return implicit_step<T>(
        span, binding,
        {implicit_shape(op.shape, op.n()).turned(), binding.read(op.dy).as<T>(),
         binding.read(op.w).as<T>(), LooseIn<T>{}, binding.write(op.dx).as<T>(), true});
  });
}

Cover covers_grad_w(const Rest& rest) {
  const auto* op = rest.get<Conv2dGradW>(0);
  if (op == nullptr) return no_such_op(Conv2dGradW::kName);
  const DType dtype = op->x.dtype;
  std::string reason =
      refuse_tensor(rest, op->shape, op->n(),
                    {op->x, op->dy, unless_loose(op->dw, dtype), unless_loose(op->db, dtype)});
  const ImplicitShape shape = implicit_shape(op->shape, op->n());
  const size_t width = size_of(dtype), memory = shared_memory(rest.runtime);
  if (reason.empty()) reason = refuse_implicit_grads(shape, false, width, memory);
  if (!reason.empty()) return Cover::no(reason);
  const int processors = cuda_runtime(rest.runtime).processors();
  return cover_unless({}, 1, implicit_grads_workspace(shape, false, width, processors, memory));
}

std::unique_ptr<Step> prepare_grad_w(const Span& span, const Binding& binding) {
  const auto& op = span.get<Conv2dGradW>(0);
  const DType dtype = op.x.dtype;
  return dispatch_factor(dtype, [&](auto type) {
    using T = decltype(type);
    ImplicitGradsArgs<T> args{implicit_shape(op.shape, op.n()), binding.read(op.x).as<T>(),
                              OutputGrad<T>{binding.read(op.dy).as<T>()},
                              loose_write<T>(binding, op.dw, dtype),
                              loose_write<T>(binding, op.db, dtype)};
    place_grads(args, binding);
    return launch_step(binding, describe(span.op(0)), [args](cudaStream_t stream) {
      const cudaError_t error = launch_conv2d_grad_maps<T>(args, stream);
      return error != cudaSuccess ? error : launch_conv2d_grad_w_implicit<T>(args, stream);
    });
  });
}

}  // namespace

Table implicit_conv_rows() {
  return {cuda_row("cuda.conv2d.implicit", covers_conv, prepare_conv),
          cuda_row("cuda.conv2d_grad_x.implicit", covers_grad_x, prepare_grad_x),
          cuda_row("cuda.conv2d_grad_w.implicit", covers_grad_w, prepare_grad_w)};
}

}  // namespace ridgeline::cuda
