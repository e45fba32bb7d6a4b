#include "ridgeline/cuda/conv/implicit.h"
#include "ridgeline/cuda/conv/kernels.h"
#include "ridgeline/cuda/conv/spans.h"
#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/bind_mixed_operand.h"

namespace ridgeline::cuda {
namespace {

std::string refuse(const RemainingOps& rest, const ConvProduct& product) {
  std::string reason =
      refuse_tensor(rest, product.conv, product.shape().n, product.values(), refuse_square);
  if (!reason.empty()) return reason;
  return refuse_implicit(product.shape(), size_of(product.dtype()), shared_memory(rest.runtime));
}

size_t workspace(const Runtime&, const ConvProduct& product) {
  return implicit_workspace(product.shape(), size_of(product.dtype()));
}

std::unique_ptr<Step> prepare(const Binding& binding, const std::string& what,
                              const ConvProduct& product) {
  return dispatch_factor(product.dtype(), [&](auto type) {
    using T = decltype(type);
    return launch_step(binding, what,
                       [args = product.args<T>(binding), pool = product.pool<T>(binding),
                        workspace = binding.workspace()](cudaStream_t stream) {
                         return launch_conv2d_implicit<T>(args, pool, workspace, stream);
                       });
  });
}

Cover covers_grad_w(const RemainingOps& rest) {
  const auto* op = rest.get<Conv2dGradW>(0);
  if (op == nullptr) return no_such_op(Conv2dGradW::kName);
  const DType dtype = op->x.dtype;
  std::string reason = refuse_tensor(
      rest, op->shape, op->n(),
      {op->x, op->dy, unless_mixed(op->dw, dtype), unless_mixed(op->db, dtype)}, refuse_square);
  const ImplicitShape shape = implicit_shape(op->shape, op->n());
  const size_t width = size_of(dtype), memory = shared_memory(rest.runtime);
  if (reason.empty()) reason = refuse_implicit_grads(shape, false, width, memory);
  if (!reason.empty()) return Cover::no(reason);
  const int sms = cuda_runtime(rest.runtime).sms();
  return cover_unless({}, 1, implicit_grads_workspace(shape, false, width, sms, memory));
}

std::unique_ptr<Step> prepare_grad_w(const Span& span, const Binding& binding) {
  const auto& op = span.get<Conv2dGradW>(0);
  const DType dtype = op.x.dtype;
  return dispatch_factor(dtype, [&](auto type) {
    using T = decltype(type);
    ImplicitGradsArgs<T> args{implicit_shape(op.shape, op.n()), binding.read(op.x).as<T>(),
                              OutputGrad<T>{binding.read(op.dy).as<T>()},
                              write_mixed<T>(binding, op.dw, dtype),
                              write_mixed<T>(binding, op.db, dtype)};
    place_grads(args, binding);
    return launch_step(binding, describe(span.op(0)), [args](cudaStream_t stream) {
      const cudaError_t error = launch_conv2d_grad_maps<T>(args, stream);
      return error != cudaSuccess ? error : launch_conv2d_grad_w_implicit<T>(args, stream);
    });
  });
}

}  // namespace

KernelTable implicit_conv_kernels() {
  KernelTable table = product_kernels("implicit", {refuse, workspace, prepare});
  table.push_back(cuda_kernel("cuda.conv2d_grad_w.implicit", covers_grad_w, prepare_grad_w));
  return concurrent(with_traits(kMma, std::move(table)));
}

}  // namespace ridgeline::cuda
