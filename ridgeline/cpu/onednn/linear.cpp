// cpu.linear.onednn and its gradients. The forward pass and the gradient by x use oneDNN's matmul:
// compared with its inner product, which falls back to a plain GEMM for weights in our layout, it
// takes half the time for ten outputs and for strides that are powers of two, and is equal
// elsewhere. The gradient by w uses the inner product, which sums the bias gradient in the same
// pass.
#ifdef RIDGELINE_HAVE_ONEDNN

#include "ridgeline/cpu/onednn/kernels.h"
#include "ridgeline/cpu/onednn/primitive.h"
#include "ridgeline/plan/linear_activation.h"

namespace ridgeline::cpu {
namespace {

constexpr const char* kLinear = "cpu.linear.onednn";
constexpr const char* kLinearActivation = "cpu.linear_activation.onednn";
constexpr const char* kFixed = "cpu.linear_fixed.onednn";
constexpr const char* kFixedActivation = "cpu.linear_activation_fixed.onednn";
constexpr const char* kGradX = "cpu.linear_grad_x.onednn";
constexpr const char* kGradW = "cpu.linear_grad_w.onednn";

Cover cover(const Values& values, size_t ops) {
  const std::string why = refuse(values);
  return why.empty() ? Cover::of(ops) : Cover::no(why);
}

Cover covers_linear(const RemainingOps& rest) {
  const auto* op = rest.get<Linear>(0);
  if (op == nullptr) return Cover::no("the next op is no linear");
  return cover({op->x, op->w, op->b, op->y}, 1);
}

Cover covers_linear_activation(const RemainingOps& rest) {
  return cover_linear_activation(rest, [](const Linear& op, const Activation& f) {
    return eltwise(f) ? cover({op.x, op.w, op.b, f.y}, 2) : Cover::no(kNoEltwise);
  });
}

Cover covers_grad_x(const RemainingOps& rest) {
  const auto* op = rest.get<LinearGradX>(0);
  if (op == nullptr) return Cover::no("the next op is no linear_grad_x");
  return cover({op->dy, op->w, op->dx}, 1);
}

Cover covers_grad_w(const RemainingOps& rest) {
  const auto* op = rest.get<LinearGradW>(0);
  if (op == nullptr) return Cover::no("the next op is no linear_grad_w");
  return cover({op->x, op->dy, op->dw, op->db}, 1);
}

dnnl::post_ops post_op(const Activation& activation) {
  dnnl::post_ops after;
  const Eltwise how = eltwise(activation);
  after.append_eltwise(1.0f, how.algorithm, how.alpha, 0.0f);
  return after;
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

// Makes the step for weights that never change, copied once into the layout that oneDNN prefers.
std::unique_ptr<Step> make_fixed(const Linear& op, const Value& y, const dnnl::post_ops& after,
                                 const Binding& binding) {
  auto chain = std::make_unique<PrimitiveChain>(binding);
  const auto source = matrix(op.n(), op.in()), result = matrix(op.n(), op.out());
  const auto plain = transposed(op.in(), op.out()), bias = matrix(1, op.out());
  const dnnl::memory::desc any({op.in(), op.out()}, dnnl::memory::data_type::f32,
                               dnnl::memory::format_tag::any);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(after);
  const dnnl::matmul::primitive_desc matmul(op.b ? dnnl::matmul::desc(source, any, bias, result)
                                                 : dnnl::matmul::desc(source, any, result),
                                            attributes, chain->engine());
  PrimitiveChain::Arguments arguments{
      {DNNL_ARG_SRC, chain->memory(source, binding.read(op.x))},
      {DNNL_ARG_WEIGHTS,
       chain->packed(chain->memory(plain, binding.read(op.w)), matmul.weights_desc())},
      {DNNL_ARG_DST, chain->memory(result, binding.write(y))}};
  if (op.b) arguments.insert({DNNL_ARG_BIAS, chain->memory(bias, binding.read(op.b))});
  chain->add(dnnl::matmul(matmul), std::move(arguments));
  return chain;
}

Cover if_fixed(const RemainingOps& rest, Cover cover) {
  constexpr int64_t kFewest = 16;  // with fewer samples, a product with a vector for each is better
  const auto* op = rest.get<Linear>(0);
  if (cover.ops == 0) return cover;
  if (rest.program.info(op->w.id).role == Role::temp) {
    return Cover::no("takes weights that are not computed");
  }
  return op->n() < kFewest ? Cover::no("takes 16 samples or more") : cover;
}

std::unique_ptr<Step> prepare_linear(const Span& span, const Binding& binding) {
  const auto& op = span.get<Linear>(0);
  return checked(kLinear, [&] { return make_linear(op, op.y, {}, binding); });
}

std::unique_ptr<Step> prepare_linear_activation(const Span& span, const Binding& binding) {
  const auto& activation = span.get<Activation>(1);
  return checked(kLinearActivation, [&] {
    return make_linear(span.get<Linear>(0), activation.y, post_op(activation), binding);
  });
}

std::unique_ptr<Step> prepare_fixed(const Span& span, const Binding& binding) {
  const auto& op = span.get<Linear>(0);
  return checked(kFixed, [&] { return make_fixed(op, op.y, {}, binding); });
}

std::unique_ptr<Step> prepare_fixed_activation(const Span& span, const Binding& binding) {
  const auto& activation = span.get<Activation>(1);
  return checked(kFixedActivation, [&] {
    return make_fixed(span.get<Linear>(0), activation.y, post_op(activation), binding);
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

KernelTable onednn_fixed_linear_kernels() {
  return {
      onednn_kernel(
          kFixedActivation,
          [](const RemainingOps& rest) { return if_fixed(rest, covers_linear_activation(rest)); },
          prepare_fixed_activation),
      onednn_kernel(
          kFixed, [](const RemainingOps& rest) { return if_fixed(rest, covers_linear(rest)); },
          prepare_fixed)};
}

}  // namespace ridgeline::cpu

#endif
