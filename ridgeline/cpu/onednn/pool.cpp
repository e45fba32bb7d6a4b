// cpu.max_pool.onednn, cpu.avg_pool.onednn and their gradients, with images plain and in blocks of
// channels; activations and their gradients on blocked images, between convolutions and pools.
#ifdef RIDGELINE_HAVE_ONEDNN

#include "ridgeline/cpu/onednn/kernels.h"
#include "ridgeline/cpu/onednn/layout.h"

namespace ridgeline::cpu {
namespace {

using dnnl::memory;
using dnnl::prop_kind;
using PoolForward = dnnl::pooling_forward;
using Backward = dnnl::pooling_backward;

Tag pool_tag(Layout layout) { return layout == Layout::plain ? Tag::nchw : blocked_tag(); }

struct PoolOperands {
  PoolOperands(const PoolShape& shape, Dim n, Layout layout)
      : x(image_memory(n, shape.in, pool_tag(layout))),
        y(image_memory(n, shape.out(), pool_tag(layout))),
        strides{shape.window.h.stride, shape.window.w.stride},
        kernel{shape.window.h.kernel, shape.window.w.kernel},
        pad{shape.window.h.pad, shape.window.w.pad} {}

  memory::desc x, y;
  memory::dims strides, kernel, pad;
};

dnnl::algorithm average(PoolCount count) {
  return count == PoolCount::window ? dnnl::algorithm::pooling_avg_include_padding
                                    : dnnl::algorithm::pooling_avg_exclude_padding;
}
dnnl::algorithm algorithm_of(const MaxPool&) { return dnnl::algorithm::pooling_max; }
dnnl::algorithm algorithm_of(const MaxPoolGrad&) { return dnnl::algorithm::pooling_max; }
dnnl::algorithm algorithm_of(const AvgPool& op) { return average(op.count); }
dnnl::algorithm algorithm_of(const AvgPoolGrad& op) { return average(op.count); }

PoolForward::primitive_desc pool_forward_desc(const dnnl::engine& engine, const PoolOperands& o,
                                              prop_kind kind, dnnl::algorithm algorithm) {
  return {{kind, algorithm, o.x, o.y, o.strides, o.kernel, o.pad, o.pad}, engine};
}
Backward::primitive_desc backward_desc(const dnnl::engine& engine, const PoolOperands& o,
                                       dnnl::algorithm algorithm) {
  return {{algorithm, o.x, o.y, o.strides, o.kernel, o.pad, o.pad},
          engine,
          pool_forward_desc(engine, o, prop_kind::forward_training, algorithm)};
}

std::string dilated(const PoolShape& shape) {
  const bool any = shape.window.h.dilation != 1 || shape.window.w.dilation != 1;
  return any ? "no dilation" : "";
}

template <typename Op>
Cover covers_pool(const RemainingOps& rest, Layout layout) {
  const auto* op = rest.get<Op>(0);
  if (op == nullptr) return Cover::no(fmt::format("the next op is no {}", Op::kName));
  if (const std::string why = dilated(op->shape); !why.empty()) return Cover::no(why);
  return ask(rest, 1, {op->x, op->y}, [&](const dnnl::engine& engine, Cover& cover) {
    const PoolOperands o(op->shape, op->n(), layout);
    pool_forward_desc(engine, o, prop_kind::forward_inference, algorithm_of(*op));
    return add_use(cover.reads, op->x, o.x, op->shape.in) &&
           add_use(cover.writes, op->y, o.y, op->shape.out());
  });
}

template <typename Op>
std::unique_ptr<Step> prepare_pool(const Span& span, const Binding& binding, Layout layout) {
  const auto& op = span.get<Op>(0);
  return checked(kernel_name(Op::kName, layout), [&] {
    auto chain = std::make_unique<PrimitiveChain>(binding);
    const PoolOperands o(op.shape, op.n(), layout);
    chain->add(PoolForward(pool_forward_desc(chain->engine(), o, prop_kind::forward_inference,
                                             algorithm_of(op))),
               {{DNNL_ARG_SRC, chain->memory(o.x, binding.read(op.x))},
                {DNNL_ARG_DST, chain->memory(o.y, binding.write(op.y))}});
    return chain;
  });
}

Cover covers_max_grad(const RemainingOps& rest, Layout layout) {
  const auto* op = rest.get<MaxPoolGrad>(0);
  if (op == nullptr) return Cover::no("the next op is no max_pool_grad");
  if (const std::string why = dilated(op->shape); !why.empty()) return Cover::no(why);
  const Values values{op->x, op->y, op->dy, op->dx};
  return ask(rest, 1, values, [&](const dnnl::engine& engine, Cover& cover) {
    const PoolOperands o(op->shape, op->n(), layout);
    backward_desc(engine, o, algorithm_of(*op));
    // y is not read, but it is taken in its current format, because a conversion would be useless.
    return add_use(cover.reads, op->x, o.x, op->shape.in) &&
           add_use(cover.reads, op->y, o.y, op->shape.out()) &&
           add_use(cover.reads, op->dy, o.y, op->shape.out()) &&
           add_use(cover.writes, op->dx, o.x, op->shape.in);
  });
}

// oneDNN's backward pass needs the indices that its forward pass recorded, so the forward pass runs
// again.
std::unique_ptr<Step> prepare_max_grad(const Span& span, const Binding& binding, Layout layout) {
  const auto& op = span.get<MaxPoolGrad>(0);
  return checked(kernel_name("max_pool_grad", layout), [&] {
    auto chain = std::make_unique<PrimitiveChain>(binding);
    const PoolOperands o(op.shape, op.n(), layout);
    const auto algorithm = algorithm_of(op);
    const auto forward =
        pool_forward_desc(chain->engine(), o, prop_kind::forward_training, algorithm);
    const auto places = chain->memory(forward.workspace_desc());
    chain->add(PoolForward(forward), {{DNNL_ARG_SRC, chain->memory(o.x, binding.read(op.x))},
                                      {DNNL_ARG_DST, chain->memory(o.y)},
                                      {DNNL_ARG_WORKSPACE, places}});
    chain->add(Backward(backward_desc(chain->engine(), o, algorithm)),
               {{DNNL_ARG_DIFF_DST, chain->memory(o.y, binding.read(op.dy))},
                {DNNL_ARG_WORKSPACE, places},
                {DNNL_ARG_DIFF_SRC, chain->memory(o.x, binding.write(op.dx))}});
    return chain;
  });
}

Cover covers_avg_grad(const RemainingOps& rest, Layout layout) {
  const auto* op = rest.get<AvgPoolGrad>(0);
  if (op == nullptr) return Cover::no("the next op is no avg_pool_grad");
  if (const std::string why = dilated(op->shape); !why.empty()) return Cover::no(why);
  return ask(rest, 1, {op->dy, op->dx}, [&](const dnnl::engine& engine, Cover& cover) {
    const PoolOperands o(op->shape, op->n(), layout);
    backward_desc(engine, o, algorithm_of(*op));
    return add_use(cover.reads, op->dy, o.y, op->shape.out()) &&
           add_use(cover.writes, op->dx, o.x, op->shape.in);
  });
}

std::unique_ptr<Step> prepare_avg_grad(const Span& span, const Binding& binding, Layout layout) {
  const auto& op = span.get<AvgPoolGrad>(0);
  return checked(kernel_name("avg_pool_grad", layout), [&] {
    auto chain = std::make_unique<PrimitiveChain>(binding);
    const PoolOperands o(op.shape, op.n(), layout);
    chain->add(Backward(backward_desc(chain->engine(), o, algorithm_of(op))),
               {{DNNL_ARG_DIFF_DST, chain->memory(o.y, binding.read(op.dy))},
                {DNNL_ARG_DIFF_SRC, chain->memory(o.x, binding.write(op.dx))}});
    return chain;
  });
}

// Returns the channels and pixels of a value that a convolution, a pool or a batch_norm reads or
// writes; no channels if none does.
Image image_of(const Program& program, const Value& value) {
  const auto is = [&](const Value& other) { return other.id == value.id; };
  for (const size_t index : program.uses(value.id)) {
    const Op& op = program.ops[index];
    if (const auto* conv = std::get_if<Conv2d>(&op)) {
      if (is(conv->x)) return conv->shape.in;
      if (is(conv->y)) return conv->shape.out();
    } else if (const auto* grad_x = std::get_if<Conv2dGradX>(&op)) {
      if (is(grad_x->dx)) return grad_x->shape.in;
      if (is(grad_x->dy)) return grad_x->shape.out();
    } else if (const auto* grad_w = std::get_if<Conv2dGradW>(&op)) {
      if (is(grad_w->dy)) return grad_w->shape.out();
    } else if (const auto* norm = std::get_if<BatchNorm>(&op)) {
      if (is(norm->x) || is(norm->y)) return norm->in;
    } else if (const auto* norm_grad = std::get_if<BatchNormGrad>(&op)) {
      if (is(norm_grad->dy) || is(norm_grad->dx)) return norm_grad->in;
    } else if (const auto* infer = std::get_if<BatchNormInfer>(&op)) {
      if (is(infer->x) || is(infer->y)) return infer->in;
    }
  }
  return {0, 0, 0};
}

constexpr const char* kActivation = "cpu.activation.onednn.blocked";
constexpr const char* kActivationGrad = "cpu.activation_grad.onednn.blocked";

Cover covers_activation(const RemainingOps& rest) {
  const auto* op = rest.get<Activation>(0);
  if (op == nullptr) return Cover::no("the next op is no activation");
  const Image image = image_of(rest.program, op->x);
  if (image.c == 0) return Cover::no("no convolution or norm gives its input");
  if (!eltwise(*op)) return Cover::no(kNoEltwise);
  return ask(rest, 1, {op->x, op->y}, [&](const dnnl::engine&, Cover& cover) {
    const auto memory = image_memory(op->x.shape[0], image, blocked_tag());
    return add_use(cover.reads, op->x, memory, image) &&
           add_use(cover.writes, op->y, memory, image);
  });
}

std::unique_ptr<Step> prepare_activation(const Span& span, const Binding& binding) {
  const auto& op = span.get<Activation>(0);
  return checked(kActivation, [&] {
    auto chain = std::make_unique<PrimitiveChain>(binding);
    const auto memory = image_memory(op.x.shape[0], image_of(span.program, op.x), blocked_tag());
    const Eltwise how = eltwise(op);
    const dnnl::eltwise_forward::desc description(prop_kind::forward_inference, how.algorithm,
                                                  memory, how.alpha, 0.0f);
    chain->add(dnnl::eltwise_forward({description, chain->engine()}),
               {{DNNL_ARG_SRC, chain->memory(memory, binding.read(op.x))},
                {DNNL_ARG_DST, chain->memory(memory, binding.write(op.y))}});
    return chain;
  });
}

Cover covers_activation_grad(const RemainingOps& rest) {
  const auto* op = rest.get<ActivationGrad>(0);
  if (op == nullptr) return Cover::no("the next op is no activation_grad");
  const Image image = image_of(rest.program, op->dx);
  if (image.c == 0) return Cover::no("no convolution or norm takes its result");
  if (!eltwise(*op)) return Cover::no(kNoEltwise);
  const Values values{op->saved, op->dy, op->dx};
  return ask(rest, 1, values, [&](const dnnl::engine&, Cover& cover) {
    const auto memory = image_memory(op->dx.shape[0], image, blocked_tag());
    return add_use(cover.reads, op->saved, memory, image) &&
           add_use(cover.reads, op->dy, memory, image) &&
           add_use(cover.writes, op->dx, memory, image);
  });
}

// Computes the derivative from the output for the activations that allow it.
Eltwise gradient_eltwise(const ActivationGrad& op) {
  switch (op.kind) {
    case ActivationKind::relu:
      return {dnnl::algorithm::eltwise_relu_use_dst_for_bwd};
    case ActivationKind::tanh:
      return {dnnl::algorithm::eltwise_tanh_use_dst_for_bwd};
    case ActivationKind::sigmoid:
      return {dnnl::algorithm::eltwise_logistic_use_dst_for_bwd};
    default:
      return eltwise(op);
  }
}

std::unique_ptr<Step> prepare_activation_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<ActivationGrad>(0);
  return checked(kActivationGrad, [&] {
    auto chain = std::make_unique<PrimitiveChain>(binding);
    const auto memory = image_memory(op.dx.shape[0], image_of(span.program, op.dx), blocked_tag());
    const auto [how, alpha] = gradient_eltwise(op);
    const dnnl::eltwise_forward::primitive_desc hint(
        {prop_kind::forward_training, how, memory, alpha, 0.0f}, chain->engine());
    const dnnl::eltwise_backward::primitive_desc description({how, memory, memory, alpha, 0.0f},
                                                             chain->engine(), hint);
    chain->add(dnnl::eltwise_backward(description),
               {{saves_output(op.kind) ? DNNL_ARG_DST : DNNL_ARG_SRC,
                 chain->memory(memory, binding.read(op.saved))},
                {DNNL_ARG_DIFF_DST, chain->memory(memory, binding.read(op.dy))},
                {DNNL_ARG_DIFF_SRC, chain->memory(memory, binding.write(op.dx))}});
    return chain;
  });
}

}  // namespace

KernelTable onednn_pool_kernels() {
  KernelTable table;
  for (const Layout layout : {Layout::blocked, Layout::plain}) {
    table.push_back(in_layout("max_pool", layout, covers_pool<MaxPool>, prepare_pool<MaxPool>));
    table.push_back(in_layout("max_pool_grad", layout, covers_max_grad, prepare_max_grad));
    table.push_back(in_layout("avg_pool", layout, covers_pool<AvgPool>, prepare_pool<AvgPool>));
    table.push_back(in_layout("avg_pool_grad", layout, covers_avg_grad, prepare_avg_grad));
  }
  table.push_back(onednn_kernel(kActivation, covers_activation, prepare_activation));
  table.push_back(onednn_kernel(kActivationGrad, covers_activation_grad, prepare_activation_grad));
  return table;
}

}  // namespace ridgeline::cpu

#endif
