#include "ridgeline/cuda/plain/kernels.h"
#include "ridgeline/cuda/plain/linear_spans.h"
#include "ridgeline/plan/linear_activation.h"

namespace ridgeline::cuda {
namespace {

// The extents of a product: D[m, n] over k.
struct Extents {
  int64_t m, n, k;
};
Extents extents(const Linear& op) { return {op.n(), op.out(), op.in()}; }
Extents extents(const LinearGradX& op) { return {op.n(), op.in(), op.out()}; }
Extents extents(const LinearGradW& op) { return {op.out(), op.in(), op.n()}; }

GemmTiling tiling_of(const Extents& e, DType dtype, const Runtime& runtime) {
  const size_t width = dtype == DType::fp64 ? 8 : 4;
  return gemm_tiling(e.m, e.n, e.k, width, cuda_runtime(runtime).sms());
}

Cover cover_product(const RemainingOps& rest, const Extents& e, const Values& values, size_t ops) {
  std::string reason = refuse_floats(values);
  if (reason.empty()) reason = refuse_large({e.m, e.n, e.k});
  if (!reason.empty()) return Cover::no(reason);
  return cover_unless({}, ops, tiling_of(e, values[0].dtype, rest.runtime).workspace);
}

Cover covers_linear(const RemainingOps& rest) {
  const auto* op = rest.get<Linear>(0);
  if (op == nullptr) return no_such_op(Linear::kName);
  return cover_product(rest, extents(*op),
                       {op->x, op->w, unless_accumulator(op->b, op->x.dtype), op->y}, 1);
}

Cover covers_linear_activation(const RemainingOps& rest) {
  return cover_linear_activation(rest, [&](const Linear& op, const Activation& f) {
    if (!has_activation_fn(f.kind)) return Cover::no(kNoActivationFn);
    return cover_product(rest, extents(op), {op.x, op.w, unless_accumulator(op.b, op.x.dtype), f.y},
                         2);
  });
}

// Prepares a linear op alone, or with the activation that follows it.
std::unique_ptr<Step> prepare_linear(const Span& span, const Binding& binding) {
  const auto& op = span.get<Linear>(0);
  const GemmTiling tiling = tiling_of(extents(op), op.x.dtype, binding.runtime());
  return dispatch_device_float(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(
        binding, describe(span.op(0)),
        [args = linear_args<T>(span, binding), tiling, workspace = binding.workspace()](
            cudaStream_t stream) { return launch_linear<T>(args, tiling, workspace, stream); });
  });
}

Cover covers_grad_x(const RemainingOps& rest) {
  const auto* op = rest.get<LinearGradX>(0);
  if (op == nullptr) return no_such_op(LinearGradX::kName);
  return cover_product(rest, extents(*op), {op->dy, op->w, op->dx}, 1);
}

std::unique_ptr<Step> prepare_grad_x(const Span& span, const Binding& binding) {
  const auto& op = span.get<LinearGradX>(0);
  const GemmTiling tiling = tiling_of(extents(op), op.dx.dtype, binding.runtime());
  return dispatch_device_float(op.dx.dtype, [&](auto type) {
    using T = decltype(type);
    const LinearGradXArgs<T> args{binding.read(op.dy).as<T>(),
                                  binding.read(op.w).as<T>(),
                                  binding.write(op.dx).as<T>(),
                                  int(op.n()),
                                  int(op.in()),
                                  int(op.out())};
    return launch_step(binding, describe(span.op(0)),
                       [args, tiling, workspace = binding.workspace()](cudaStream_t stream) {
                         return launch_linear_grad_x<T>(args, tiling, workspace, stream);
                       });
  });
}

Cover covers_grad_w(const RemainingOps& rest) {
  const auto* op = rest.get<LinearGradW>(0);
  if (op == nullptr) return no_such_op(LinearGradW::kName);
  if (op->db && op->db.dtype != op->dw.dtype) return Cover::no("wants one type of gradients");
  return cover_product(rest, extents(*op),
                       {op->x, op->dy, unless_accumulator(op->dw, op->x.dtype),
                        unless_accumulator(op->db, op->x.dtype)},
                       1);
}

Cover covers_grad_w_sgd(const RemainingOps& rest) {
  return cover_grad_with_updates(rest, [&](const GradWithUpdates& found) {
    return cover_product(rest, extents(*found.grad), found.values, found.ops);
  });
}

// Prepares the gradients alone, or with the updates that follow them.
std::unique_ptr<Step> prepare_grad_w(const Span& span, const Binding& binding) {
  const auto& op = span.get<LinearGradW>(0);
  const GemmTiling tiling = tiling_of(extents(op), op.x.dtype, binding.runtime());
  return dispatch_device_float(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(binding, describe(span.op(0)),
                       [args = linear_grad_w_args<T>(span, binding), tiling,
                        workspace = binding.workspace()](cudaStream_t stream) {
                         return launch_linear_grad_w<T>(args, tiling, workspace, stream);
                       });
  });
}

}  // namespace

KernelTable plain_linear_kernels() {
  return concurrent(
      {cuda_kernel("cuda.linear_activation.plain", covers_linear_activation, prepare_linear),
       cuda_kernel("cuda.linear.plain", covers_linear, prepare_linear),
       cuda_kernel("cuda.linear_grad_x.plain", covers_grad_x, prepare_grad_x),
       cuda_kernel("cuda.linear_grad_w_sgd.plain", covers_grad_w_sgd, prepare_grad_w),
       cuda_kernel("cuda.linear_grad_w.plain", covers_grad_w, prepare_grad_w)});
}

}  // namespace ridgeline::cuda
