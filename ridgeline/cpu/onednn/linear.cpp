// cpu.linear.onednn and its relatives. The forward pass and the gradient by x are oneDNN's matmul:
// measured beside its inner product, which falls back to a plain GEMM for weights in our layout, it
// takes half the time for ten outputs and for strides that are powers of two, and ties elsewhere.
// The gradient by w is the inner product's, which sums the bias gradient in the same pass.
#ifdef RIDGELINE_HAVE_ONEDNN

#include "ridgeline/cpu/onednn/kernels.h"
#include "ridgeline/cpu/onednn/primitive.h"
#include "ridgeline/plan/linear_activation.h"

namespace ridgeline::cpu {
namespace {

constexpr const char* kLinear = "cpu.linear.onednn";
constexpr const char* kLinearActivation = "cpu.linear_activation.onednn";
constexpr const char* kGradX = "cpu.linear_grad_x.onednn";
constexpr const char* kGradW = "cpu.linear_grad_w.onednn";

Cover cover(const Values& values, size_t ops) {
  const std::string why = refuse(values);
  return why.empty() ? Cover::of(ops) : Cover::no(why);
}

Cover covers_linear(const Rest& rest) {
  const auto* op = rest.get<Linear>(0);
  if (op == nullptr) return Cover::no("the next op is no linear");
  return cover({op->x, op->w, op->b, op->y}, 1);
}

Cover covers_linear_activation(const Rest& rest) {
  return cover_linear_activation(rest, [](const Linear& op, const Activation& f) {
    return eltwise(f) ? cover({op.x, op.w, op.b, f.y}, 2) : Cover::no(kNoEltwise);
  });
}

Cover covers_grad_x(const Rest& rest) {
  const auto* op = rest.get<LinearGradX>(0);
  if (op == nullptr) return Cover::no("the next op is no linear_grad_x");
  return cover({op->dy, op->w, op->dx}, 1);
}

Cover covers_grad_w(const Rest& rest) {
  const auto* op = rest.get<LinearGradW>(0);
  if (op == nullptr) return Cover::no("the next op is no linear_grad_w");
  return cover({op->x, op->dy, op->dw, op->db}, 1);
}

// y[n, out] = f(x[n, in] . w[out, in]^T + b[out])
std::unique_ptr<Step> make_linear(const Linear& op, const Value& y, const dnnl::post_ops& after,
                                  const Binding& binding) {
  auto step = std::make_unique<PrimitiveStep>(binding);
  const auto source = matrix(op.n(), op.in());
  const auto weights = transposed(op.in(), op.out());
  const auto result = matrix(op.n(), op.out());
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(after);
  if (op.b) {
    const auto bias = matrix(1, op.out());
    const dnnl::matmul::desc description(source, weights, bias, result);
    step->set(dnnl::matmul({description, attributes, step->engine()}));
    step->bind(DNNL_ARG_BIAS, bias, binding.read(op.b));
  } else {
    const dnnl::matmul::desc description(source, weights, result);
    step->set(dnnl::matmul({description, attributes, step->engine()}));
  }
  step->bind(DNNL_ARG_SRC, source, binding.read(op.x));
  step->bind(DNNL_ARG_WEIGHTS, weights, binding.read(op.w));
  step->bind(DNNL_ARG_DST, result, binding.write(y));
  return step;
}

std::unique_ptr<Step> prepare_linear(const Span& span, const Binding& binding) {
  const auto& op = span.get<Linear>(0);
  return checked(kLinear, [&] { return make_linear(op, op.y, {}, binding); });
}

std::unique_ptr<Step> prepare_linear_activation(const Span& span, const Binding& binding) {
  const auto& activation = span.get<Activation>(1);
  return checked(kLinearActivation, [&] {
    dnnl::post_ops after;
    const Eltwise how = eltwise(activation);
    after.append_eltwise(1.0f, how.algorithm, how.alpha, 0.0f);
    return make_linear(span.get<Linear>(0), activation.y, after, binding);
  });
}

// dx[n, in] = dy[n, out] . w[out, in]
std::unique_ptr<Step> prepare_grad_x(const Span& span, const Binding& binding) {
  const auto& op = span.get<LinearGradX>(0);
  return checked(kGradX, [&] {
    auto step = std::make_unique<PrimitiveStep>(binding);
    const auto dy = matrix(op.n(), op.out());
    const auto w = matrix(op.out(), op.in());
    const auto dx = matrix(op.n(), op.in());
    step->set(dnnl::matmul({dnnl::matmul::desc(dy, w, dx), step->engine()}));
    step->bind(DNNL_ARG_SRC, dy, binding.read(op.dy));
    step->bind(DNNL_ARG_WEIGHTS, w, binding.read(op.w));
    step->bind(DNNL_ARG_DST, dx, binding.write(op.dx));
    return step;
  });
}

// dw[out, in] = dy[n, out]^T . x[n, in];  db[out] = sum over n of dy
std::unique_ptr<Step> prepare_grad_w(const Span& span, const Binding& binding) {
  using Forward = dnnl::inner_product_forward;
  using Backward = dnnl::inner_product_backward_weights;
  const auto& op = span.get<LinearGradW>(0);
  return checked(kGradW, [&] {
    auto step = std::make_unique<PrimitiveStep>(binding);
    const auto x = matrix(op.n(), op.in());
    const auto dw = matrix(op.out(), op.in());
    const auto db = op.db ? vector(op.out()) : dnnl::memory::desc();
    const auto dy = matrix(op.n(), op.out());
    const Forward::primitive_desc hint({dnnl::prop_kind::forward_training, x, dw, db, dy},
                                       step->engine());
    step->set(Backward({Backward::desc(x, dw, db, dy), step->engine(), hint}));
    step->bind(DNNL_ARG_SRC, x, binding.read(op.x));
    step->bind(DNNL_ARG_DIFF_DST, dy, binding.read(op.dy));
    step->bind(DNNL_ARG_DIFF_WEIGHTS, dw, binding.write(op.dw));
    if (op.db) step->bind(DNNL_ARG_DIFF_BIAS, db, binding.write(op.db));
    return step;
  });
}

}  // namespace

KernelTable onednn_linear_kernels() {
  return {onednn_kernel(kLinearActivation, covers_linear_activation, prepare_linear_activation),
          onednn_kernel(kLinear, covers_linear, prepare_linear),
          onednn_kernel(kGradX, covers_grad_x, prepare_grad_x),
          onednn_kernel(kGradW, covers_grad_w, prepare_grad_w)};
}

}  // namespace ridgeline::cpu

#endif
