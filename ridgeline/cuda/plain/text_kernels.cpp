#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/bind_mixed_operand.h"
#include "ridgeline/cuda/plain/kernels.h"
#include "ridgeline/cuda/plain/one_hot_conv.h"

namespace ridgeline::cuda {
namespace {

template <typename Op>
OneHotGeometry geometry(const Op& op) {
  return {int(op.n()), int(op.length()), int(op.symbols()), int(op.out()), int(op.kernel())};
}

template <typename Op>
std::string refuse(const Op& op, const Values& values) {
  std::string reason = refuse_floats(values);
  if (reason.empty()) {
    reason = refuse_large({op.n(), op.length(), op.steps(), op.out(), op.symbols() * op.kernel()});
  }
  return reason;
}

Cover covers_conv(const RemainingOps& rest) {
  const auto* op = rest.get<OneHotConv1d>(0);
  if (op == nullptr) return no_such_op(OneHotConv1d::kName);
  return cover_unless(refuse(*op, {op->y, op->w, unless_mixed(op->b, op->y.dtype)}), 1);
}

std::unique_ptr<Step> prepare_conv(const Span& span, const Binding& binding) {
  const auto& op = span.get<OneHotConv1d>(0);
  return dispatch_device_float(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(
        binding, describe(span.op(0)),
        [g = geometry(op), token = binding.read(op.token).as<int32_t>(),
         w = binding.read(op.w).as<T>(), b = read_mixed<T>(binding, op.b, op.y.dtype),
         y = binding.write(op.y).as<T>()](cudaStream_t stream) {
          return launch_one_hot_conv<T>(g, token, w, b, y, stream);
        });
  });
}

Cover covers_grad(const RemainingOps& rest) {
  const auto* op = rest.get<OneHotConv1dGradW>(0);
  if (op == nullptr) return no_such_op(OneHotConv1dGradW::kName);
  const DType dtype = op->dy.dtype;
  std::string reason =
      refuse(*op, {op->dy, unless_mixed(op->dw, dtype), unless_mixed(op->db, dtype)});
  if (!reason.empty()) return Cover::no(reason);
  return cover_unless({}, 1, one_hot_grad_workspace(geometry(*op), size_of(accumulated(dtype))));
}

std::unique_ptr<Step> prepare_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<OneHotConv1dGradW>(0);
  return dispatch_device_float(op.dy.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(
        binding, describe(span.op(0)),
        [g = geometry(op), token = binding.read(op.token).as<int32_t>(),
         dy = binding.read(op.dy).as<T>(), dw = write_mixed<T>(binding, op.dw, op.dy.dtype),
         db = write_mixed<T>(binding, op.db, op.dy.dtype),
         workspace = binding.workspace()](cudaStream_t stream) {
          return launch_one_hot_conv_grad_w<T>(g, token, dy, dw, db, workspace, stream);
        });
  });
}

}  // namespace

KernelTable plain_text_kernels() {
  return concurrent({cuda_kernel("cuda.one_hot_conv1d.plain", covers_conv, prepare_conv),
                     cuda_kernel("cuda.one_hot_conv1d_grad_w.plain", covers_grad, prepare_grad)});
}

}  // namespace ridgeline::cuda
