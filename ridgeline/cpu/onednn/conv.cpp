// cpu.conv2d.onednn and its gradients, each with images plain and in blocks of channels. Weights
// stay in our layout; a copy in oneDNN's is made in each run, which is cheap beside the work of a
// training step, or once for an inference call, whose kernels have "fixed" in their names. Only
// direct algorithms are used: Winograd's errors exceed the bound of a kernel.
#ifdef RIDGELINE_HAVE_ONEDNN

#include "ridgeline/cpu/onednn/kernels.h"
#include "ridgeline/cpu/onednn/layout.h"

namespace ridgeline::cpu {
namespace {

using dnnl::algorithm;
using dnnl::memory;
using ConvForward = dnnl::convolution_forward;
using BackwardData = dnnl::convolution_backward_data;
using BackwardWeights = dnnl::convolution_backward_weights;

// The backward passes start from x, so a forward pass only needs to give its result.
constexpr auto kInference = dnnl::prop_kind::forward_inference;

// The operands of a convolution as oneDNN describes them.
struct ConvOperands {
  ConvOperands(const Conv2dShape& shape, Dim n, bool has_bias, Layout layout)
      : x(image(n, shape.in, layout)),
        y(image(n, shape.out(), layout)),
        w(weights(shape, Tag::any)),
        plain_w(weights(shape, shape.groups > 1 ? Tag::goihw : Tag::oihw)),
        strides{shape.window.h.stride, shape.window.w.stride},
        dilates{shape.window.h.dilation - 1, shape.window.w.dilation - 1},
        pad{shape.window.h.pad, shape.window.w.pad},
        bias(vector(shape.k)),
        has_bias(has_bias) {}

  memory::desc x, y, w, plain_w;
  memory::dims strides, dilates, pad;
  memory::desc bias;
  bool has_bias;

 private:
  static memory::desc image(Dim n, const Image& image, Layout layout) {
    return image_memory(n, image, layout == Layout::plain ? Tag::nchw : Tag::any);
  }
  static memory::desc weights(const Conv2dShape& shape, Tag tag) {
    memory::dims dims{shape.k, shape.group_in(), shape.window.h.kernel, shape.window.w.kernel};
    if (shape.groups > 1) {
      dims[0] = shape.group_out();
      dims.insert(dims.begin(), shape.groups);
    }
    return {dims, memory::data_type::f32, tag};
  }
};

ConvForward::primitive_desc conv_forward_desc(const dnnl::engine& engine, const ConvOperands& o,
                                              dnnl::prop_kind kind,
                                              const dnnl::primitive_attr& attributes = {}) {
  const auto direct = algorithm::convolution_direct;
  if (o.has_bias) {
    return {{kind, direct, o.x, o.w, o.bias, o.y, o.strides, o.dilates, o.pad, o.pad},
            attributes,
            engine};
  }
  return {{kind, direct, o.x, o.w, o.y, o.strides, o.dilates, o.pad, o.pad}, attributes, engine};
}

BackwardData::primitive_desc data_desc(const dnnl::engine& engine, const ConvOperands& o) {
  return {{algorithm::convolution_direct, o.x, o.w, o.y, o.strides, o.dilates, o.pad, o.pad},
          engine,
          conv_forward_desc(engine, o, dnnl::prop_kind::forward_training)};
}

BackwardWeights::primitive_desc weights_desc(const dnnl::engine& engine, const ConvOperands& o) {
  const auto direct = algorithm::convolution_direct;
  const auto hint = conv_forward_desc(engine, o, dnnl::prop_kind::forward_training);
  if (o.has_bias) {
    return {{direct, o.x, o.w, o.bias, o.y, o.strides, o.dilates, o.pad, o.pad}, engine, hint};
  }
  return {{direct, o.x, o.w, o.y, o.strides, o.dilates, o.pad, o.pad}, engine, hint};
}

dnnl::primitive_attr followed_by(const Activation* activation) {
  dnnl::primitive_attr attributes;
  if (activation != nullptr) {
    dnnl::post_ops after;
    const Eltwise how = eltwise(*activation);
    after.append_eltwise(1.0f, how.algorithm, how.alpha, 0.0f);
    attributes.set_post_ops(after);
  }
  return attributes;
}

template <bool kActivated>
Cover covers_conv(const RemainingOps& rest, Layout layout) {
  const auto* op = rest.get<Conv2d>(0);
  if (op == nullptr) return Cover::no("the next op is no conv2d");
  const Activation* activation = kActivated ? rest.get<Activation>(1) : nullptr;
  if (kActivated) {
    if (activation == nullptr || activation->x.id != op->y.id) {
      return Cover::no("the next ops are no conv2d and its activation");
    }
    if (!rest.dead_after(op->y, 2)) {
      return Cover::no("the input of the activation is needed later");
    }
    if (!eltwise(*activation)) return Cover::no(kNoEltwise);
  }
  const Value& y = kActivated ? activation->y : op->y;
  const auto describe = [&](const dnnl::engine& engine, Cover& cover) {
    const ConvOperands operands(op->shape, op->n(), bool(op->b), layout);
    const auto conv = conv_forward_desc(engine, operands, kInference, followed_by(activation));
    if (kActivated) cover.skips = {op->y.id};
    return add_use(cover.reads, op->x, conv.src_desc(), op->shape.in) &&
           add_use(cover.writes, y, conv.dst_desc(), op->shape.out());
  };
  return ask(rest, kActivated ? 2 : 1, {op->x, op->w, op->b, y}, describe);
}

template <bool kActivated, bool kFixed>
const char* forward_name() {
  if (kActivated) return kFixed ? "conv2d_activation_fixed" : "conv2d_activation";
  return kFixed ? "conv2d_fixed" : "conv2d";
}

// kFixed: the weights never change, so they are copied into oneDNN's layout once.
template <bool kActivated, bool kFixed>
std::unique_ptr<Step> prepare_conv(const Span& span, const Binding& binding, Layout layout) {
  const auto& op = span.get<Conv2d>(0);
  const Activation* activation = kActivated ? &span.get<Activation>(1) : nullptr;
  return checked(kernel_name(forward_name<kActivated, kFixed>(), layout), [&] {
    auto chain = std::make_unique<PrimitiveChain>(binding);
    const ConvOperands o(op.shape, op.n(), bool(op.b), layout);
    const auto conv = conv_forward_desc(chain->engine(), o, kInference, followed_by(activation));
    const auto w = chain->memory(o.plain_w, binding.read(op.w));
    PrimitiveChain::Arguments arguments{
        {DNNL_ARG_SRC, chain->memory(conv.src_desc(), binding.read(op.x))},
        {DNNL_ARG_WEIGHTS,
         kFixed ? chain->packed(w, conv.weights_desc()) : chain->reordered(w, conv.weights_desc())},
        {DNNL_ARG_DST,
         chain->memory(conv.dst_desc(), binding.write(kActivated ? activation->y : op.y))}};
    if (op.b) arguments.insert({DNNL_ARG_BIAS, chain->memory(o.bias, binding.read(op.b))});
    chain->add(ConvForward(conv), std::move(arguments));
    return chain;
  });
}

Cover covers_conv_grad_x(const RemainingOps& rest, Layout layout) {
  const auto* op = rest.get<Conv2dGradX>(0);
  if (op == nullptr) return Cover::no("the next op is no conv2d_grad_x");
  const auto describe = [&](const dnnl::engine& engine, Cover& cover) {
    const auto conv = data_desc(engine, ConvOperands(op->shape, op->n(), false, layout));
    return add_use(cover.reads, op->dy, conv.diff_dst_desc(), op->shape.out()) &&
           add_use(cover.writes, op->dx, conv.diff_src_desc(), op->shape.in);
  };
  return ask(rest, 1, {op->dy, op->w, op->dx}, describe);
}

std::unique_ptr<Step> prepare_conv_grad_x(const Span& span, const Binding& binding, Layout layout) {
  const auto& op = span.get<Conv2dGradX>(0);
  return checked(kernel_name("conv2d_grad_x", layout), [&] {
    auto chain = std::make_unique<PrimitiveChain>(binding);
    const ConvOperands o(op.shape, op.n(), false, layout);
    const auto conv = data_desc(chain->engine(), o);
    const auto w = chain->memory(o.plain_w, binding.read(op.w));
    chain->add(BackwardData(conv),
               {{DNNL_ARG_DIFF_DST, chain->memory(conv.diff_dst_desc(), binding.read(op.dy))},
                {DNNL_ARG_WEIGHTS, chain->reordered(w, conv.weights_desc())},
                {DNNL_ARG_DIFF_SRC, chain->memory(conv.diff_src_desc(), binding.write(op.dx))}});
    return chain;
  });
}

Cover covers_conv_grad_w(const RemainingOps& rest, Layout layout) {
  const auto* op = rest.get<Conv2dGradW>(0);
  if (op == nullptr) return Cover::no("the next op is no conv2d_grad_w");
  const auto describe = [&](const dnnl::engine& engine, Cover& cover) {
    const auto conv = weights_desc(engine, ConvOperands(op->shape, op->n(), bool(op->db), layout));
    return add_use(cover.reads, op->x, conv.src_desc(), op->shape.in) &&
           add_use(cover.reads, op->dy, conv.diff_dst_desc(), op->shape.out());
  };
  return ask(rest, 1, {op->x, op->dy, op->dw, op->db}, describe);
}

std::unique_ptr<Step> prepare_conv_grad_w(const Span& span, const Binding& binding, Layout layout) {
  const auto& op = span.get<Conv2dGradW>(0);
  return checked(kernel_name("conv2d_grad_w", layout), [&] {
    auto chain = std::make_unique<PrimitiveChain>(binding);
    const ConvOperands o(op.shape, op.n(), bool(op.db), layout);
    const auto conv = weights_desc(chain->engine(), o);
    const auto dw = chain->memory(o.plain_w, binding.write(op.dw));
    const bool direct = conv.diff_weights_desc() == o.plain_w;
    const auto made = direct ? dw : chain->memory(conv.diff_weights_desc());
    PrimitiveChain::Arguments arguments{
        {DNNL_ARG_SRC, chain->memory(conv.src_desc(), binding.read(op.x))},
        {DNNL_ARG_DIFF_DST, chain->memory(conv.diff_dst_desc(), binding.read(op.dy))},
        {DNNL_ARG_DIFF_WEIGHTS, made}};
    if (op.db) arguments.insert({DNNL_ARG_DIFF_BIAS, chain->memory(o.bias, binding.write(op.db))});
    chain->add(BackwardWeights(conv), std::move(arguments));
    if (!direct) {
      chain->add(dnnl::reorder(made, dw), {{DNNL_ARG_FROM, made}, {DNNL_ARG_TO, dw}});
    }
    return chain;
  });
}

}  // namespace

KernelTable onednn_conv_kernels() {
  KernelTable table;
  for (const Layout layout : {Layout::blocked, Layout::plain}) {
    table.push_back(in_layout(forward_name<true, false>(), layout, covers_conv<true>,
                              prepare_conv<true, false>));
    table.push_back(in_layout(forward_name<false, false>(), layout, covers_conv<false>,
                              prepare_conv<false, false>));
    table.push_back(in_layout("conv2d_grad_x", layout, covers_conv_grad_x, prepare_conv_grad_x));
    table.push_back(in_layout("conv2d_grad_w", layout, covers_conv_grad_w, prepare_conv_grad_w));
  }
  return table;
}

namespace {

template <bool kActivated>
Cover covers_fixed(const RemainingOps& rest, Layout layout) {
  constexpr int64_t kFewest = 8;  // with fewer, our direct kernels are faster
  const auto* op = rest.get<Conv2d>(0);
  if (op != nullptr && rest.program.info(op->w.id).role == Role::temp) {
    return Cover::no("takes weights that are not computed");
  }
  if (op != nullptr && op->shape.in.c < kFewest) return Cover::no("takes 8 channels or more");
  return covers_conv<kActivated>(rest, layout);
}

}  // namespace

KernelTable onednn_fixed_conv_kernels() {
  KernelTable table;
  for (const Layout layout : {Layout::blocked, Layout::plain}) {
    table.push_back(in_layout(forward_name<true, true>(), layout, covers_fixed<true>,
                              prepare_conv<true, true>));
    table.push_back(in_layout(forward_name<false, true>(), layout, covers_fixed<false>,
                              prepare_conv<false, true>));
  }
  return table;
}

}  // namespace ridgeline::cpu

#endif
