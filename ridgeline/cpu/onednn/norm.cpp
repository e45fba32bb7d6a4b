// cpu.batch_norm.onednn and its gradient, with images plain and in blocks of channels, and
// cpu.layer_norm.onednn. oneDNN keeps variances where our ops keep 1 / deviation: a few numbers per
// channel, converted before or after it runs.
#ifdef RIDGELINE_HAVE_ONEDNN

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridgeline/cpu/onednn/kernels.h"
#include "ridgeline/cpu/onednn/layout.h"

namespace ridgeline::cpu {
namespace {

using dnnl::memory;
using dnnl::prop_kind;
using Flags = dnnl::normalization_flags;
using Arguments = PrimitiveChain::Arguments;

Tag tag_of(Layout layout) { return layout == Layout::plain ? Tag::nchw : blocked_tag(); }

// Runs f(), then the primitives, then g().
template <typename F, typename G>
std::unique_ptr<Step> around(const std::shared_ptr<PrimitiveChain>& chain, F before, G after) {
  return make_step([chain, before, after] {
    before();
    chain->run();
    after();
  });
}
constexpr auto kNothing = [] {};

// Returns a small array owned by the step.
std::shared_ptr<std::vector<float>> numbers(int64_t count, float value = 0.0f) {
  return std::make_shared<std::vector<float>>(size_t(count), value);
}
dnnl::memory bound(const PrimitiveChain& chain, const memory::desc& description,
                   const std::vector<float>& values) {
  return {description, chain.engine(), const_cast<float*>(values.data())};
}

// The epsilon for oneDNN, which must not be zero: the channels that pad a block have a variance of
// zero, and 1 / sqrt(0) would turn their zeros into NaN.
constexpr float kTiny = std::numeric_limits<float>::min();
float positive(double epsilon) { return std::max(float(epsilon), kTiny); }

// variance = 1 / rstd^2, to be used with kTiny as epsilon, which is negligible beside it
auto variances(const Tensor& rstd, const std::shared_ptr<std::vector<float>>& to) {
  return [rstd, to] {
    for (size_t i = 0; i < to->size(); ++i) {
      const float each = rstd.as<const float>()[i];
      (*to)[i] = 1.0f / (each * each);
    }
  };
}

Flags affine(const Value& gamma, const Value& beta) {
  auto flags = Flags::none;
  if (gamma) flags = flags | Flags::use_scale;
  if (beta) flags = flags | Flags::use_shift;
  return flags;
}

Cover covers_batch(const RemainingOps& rest, Layout layout) {
  const auto* op = rest.get<BatchNorm>(0);
  if (op == nullptr) return Cover::no("the next op is no batch_norm");
  const Values values{op->x, op->gamma, op->beta, op->running_mean, op->running_var, op->mean};
  return ask(rest, 1, values, [&](const dnnl::engine&, Cover& cover) {
    const auto image = image_memory(op->n(), op->in, tag_of(layout));
    return add_use(cover.reads, op->x, image, op->in) &&
           add_use(cover.writes, op->y, image, op->in);
  });
}

std::unique_ptr<Step> prepare_batch(const Span& span, const Binding& binding, Layout layout) {
  const auto& op = span.get<BatchNorm>(0);
  return checked(kernel_name("batch_norm", layout), [&] {
    auto chain = std::make_shared<PrimitiveChain>(binding);
    const auto image = image_memory(op.n(), op.in, tag_of(layout));
    const auto channels = vector(op.in.c);
    const auto var = numbers(op.in.c);
    const dnnl::batch_normalization_forward::primitive_desc description(
        {prop_kind::forward_training, image, positive(op.epsilon), affine(op.gamma, op.beta)},
        chain->engine());
    Arguments arguments{{DNNL_ARG_SRC, chain->memory(image, binding.read(op.x))},
                        {DNNL_ARG_DST, chain->memory(image, binding.write(op.y))},
                        {DNNL_ARG_MEAN, chain->memory(channels, binding.write(op.mean))},
                        {DNNL_ARG_VARIANCE, bound(*chain, channels, *var)}};
    if (op.gamma) {
      arguments.insert({DNNL_ARG_SCALE, chain->memory(channels, binding.read(op.gamma))});
      arguments.insert({DNNL_ARG_SHIFT, chain->memory(channels, binding.read(op.beta))});
    }
    chain->add(dnnl::batch_normalization_forward(description), std::move(arguments));
    const auto finish = [mean = binding.write(op.mean), rstd = binding.write(op.rstd),
                         running_mean = binding.write(op.running_mean),
                         running_var = binding.write(op.running_var),
                         batches = binding.write(op.batches), var, epsilon = op.epsilon,
                         momentum = float(op.momentum),
                         unbiased = float(double(op.count()) / double(op.count() - 1))] {
      for (size_t c = 0; c < var->size(); ++c) {
        float *m = running_mean.as<float>() + c, *v = running_var.as<float>() + c;
        rstd.as<float>()[c] = float(1.0 / std::sqrt(double((*var)[c]) + epsilon));
        *m += momentum * (mean.as<float>()[c] - *m);
        *v += momentum * ((*var)[c] * unbiased - *v);
      }
      ++*batches.as<int64_t>();
    };
    return around(chain, kNothing, finish);
  });
}

Cover covers_batch_grad(const RemainingOps& rest, Layout layout) {
  const auto* op = rest.get<BatchNormGrad>(0);
  if (op == nullptr) return Cover::no("the next op is no batch_norm_grad");
  if (!op->dx) return Cover::no("oneDNN gives dx too");
  const Values values{op->x, op->gamma, op->mean, op->rstd, op->dy, op->dx, op->dgamma};
  return ask(rest, 1, values, [&](const dnnl::engine&, Cover& cover) {
    const auto image = image_memory(op->n(), op->in, tag_of(layout));
    return add_use(cover.reads, op->x, image, op->in) &&
           add_use(cover.reads, op->dy, image, op->in) &&
           add_use(cover.writes, op->dx, image, op->in);
  });
}

std::unique_ptr<Step> prepare_batch_grad(const Span& span, const Binding& binding, Layout layout) {
  const auto& op = span.get<BatchNormGrad>(0);
  return checked(kernel_name("batch_norm_grad", layout), [&] {
    auto chain = std::make_shared<PrimitiveChain>(binding);
    const auto image = image_memory(op.n(), op.in, tag_of(layout));
    const auto channels = vector(op.in.c);
    const auto var = numbers(op.in.c);
    const Flags flags = affine(op.gamma, op.dbeta);
    const dnnl::batch_normalization_forward::primitive_desc hint(
        {prop_kind::forward_training, image, kTiny, flags}, chain->engine());
    const dnnl::batch_normalization_backward::primitive_desc description(
        {prop_kind::backward, image, image, kTiny, flags}, chain->engine(), hint);
    Arguments arguments{{DNNL_ARG_SRC, chain->memory(image, binding.read(op.x))},
                        {DNNL_ARG_DIFF_DST, chain->memory(image, binding.read(op.dy))},
                        {DNNL_ARG_MEAN, chain->memory(channels, binding.read(op.mean))},
                        {DNNL_ARG_VARIANCE, bound(*chain, channels, *var)},
                        {DNNL_ARG_DIFF_SRC, chain->memory(image, binding.write(op.dx))}};
    if (op.gamma) {
      arguments.insert({DNNL_ARG_SCALE, chain->memory(channels, binding.read(op.gamma))});
      arguments.insert({DNNL_ARG_DIFF_SCALE, op.dgamma
                                                 ? chain->memory(channels, binding.write(op.dgamma))
                                                 : chain->memory(channels)});
    }
    if (op.dbeta) {
      arguments.insert({DNNL_ARG_SHIFT, chain->memory(channels)});  // required, but not read
      arguments.insert({DNNL_ARG_DIFF_SHIFT, chain->memory(channels, binding.write(op.dbeta))});
    }
    chain->add(dnnl::batch_normalization_backward(description), std::move(arguments));
    return around(chain, variances(binding.read(op.rstd), var), kNothing);
  });
}

Cover covers_infer(const RemainingOps& rest, Layout layout) {
  const auto* op = rest.get<BatchNormInfer>(0);
  if (op == nullptr) return Cover::no("the next op is no batch_norm_infer");
  const Values values{op->x, op->gamma, op->beta, op->mean, op->var, op->y};
  return ask(rest, 1, values, [&](const dnnl::engine&, Cover& cover) {
    const auto image = image_memory(op->n(), op->in, tag_of(layout));
    return add_use(cover.reads, op->x, image, op->in) &&
           add_use(cover.writes, op->y, image, op->in);
  });
}

std::unique_ptr<Step> prepare_infer(const Span& span, const Binding& binding, Layout layout) {
  const auto& op = span.get<BatchNormInfer>(0);
  return checked(kernel_name("batch_norm_infer", layout), [&] {
    auto chain = std::make_unique<PrimitiveChain>(binding);
    const auto image = image_memory(op.n(), op.in, tag_of(layout));
    const auto channels = vector(op.in.c);
    const dnnl::batch_normalization_forward::primitive_desc description(
        {prop_kind::forward_inference, image, positive(op.epsilon),
         affine(op.gamma, op.beta) | Flags::use_global_stats},
        chain->engine());
    Arguments arguments{{DNNL_ARG_SRC, chain->memory(image, binding.read(op.x))},
                        {DNNL_ARG_DST, chain->memory(image, binding.write(op.y))},
                        {DNNL_ARG_MEAN, chain->memory(channels, binding.read(op.mean))},
                        {DNNL_ARG_VARIANCE, chain->memory(channels, binding.read(op.var))}};
    if (op.gamma) {
      arguments.insert({DNNL_ARG_SCALE, chain->memory(channels, binding.read(op.gamma))});
      arguments.insert({DNNL_ARG_SHIFT, chain->memory(channels, binding.read(op.beta))});
    }
    chain->add(dnnl::batch_normalization_forward(description), std::move(arguments));
    return std::unique_ptr<Step>(std::move(chain));
  });
}

constexpr const char* kLayer = "cpu.layer_norm.onednn";
constexpr const char* kLayerGrad = "cpu.layer_norm_grad.onednn";

Cover covers_layer(const RemainingOps& rest) {
  const auto* op = rest.get<LayerNorm>(0);
  if (op == nullptr) return Cover::no("the next op is no layer_norm");
  const std::string why = refuse({op->x, op->gamma, op->beta, op->y, op->mean, op->rstd});
  return why.empty() ? Cover::of(1) : Cover::no(why);
}

std::unique_ptr<Step> prepare_layer(const Span& span, const Binding& binding) {
  const auto& op = span.get<LayerNorm>(0);
  return checked(kLayer, [&] {
    auto chain = std::make_shared<PrimitiveChain>(binding);
    const auto image = matrix(op.rows(), op.width);
    const auto each = vector(op.rows()), weights = vector(op.width);
    const auto var = numbers(op.rows());
    const dnnl::layer_normalization_forward::primitive_desc description(
        {prop_kind::forward_training, image, each, positive(op.epsilon), affine(op.gamma, op.beta)},
        chain->engine());
    Arguments arguments{{DNNL_ARG_SRC, chain->memory(image, binding.read(op.x))},
                        {DNNL_ARG_DST, chain->memory(image, binding.write(op.y))},
                        {DNNL_ARG_MEAN, op.mean ? chain->memory(each, binding.write(op.mean))
                                                : chain->memory(each)},
                        {DNNL_ARG_VARIANCE, bound(*chain, each, *var)}};
    if (op.gamma)
      arguments.insert({DNNL_ARG_SCALE, chain->memory(weights, binding.read(op.gamma))});
    if (op.beta) arguments.insert({DNNL_ARG_SHIFT, chain->memory(weights, binding.read(op.beta))});
    chain->add(dnnl::layer_normalization_forward(description), std::move(arguments));
    const auto finish = [rstd = binding.write(op.rstd), var, epsilon = op.epsilon] {
      for (size_t i = 0; rstd.data != nullptr && i < var->size(); ++i) {
        rstd.as<float>()[i] = float(1.0 / std::sqrt(double((*var)[i]) + epsilon));
      }
    };
    return around(chain, kNothing, finish);
  });
}

Cover covers_layer_grad(const RemainingOps& rest) {
  const auto* op = rest.get<LayerNormGrad>(0);
  if (op == nullptr) return Cover::no("the next op is no layer_norm_grad");
  if (!op->dx) return Cover::no("oneDNN gives dx too");
  const std::string why = refuse({op->x, op->gamma, op->mean, op->rstd, op->dy, op->dx});
  return why.empty() ? Cover::of(1) : Cover::no(why);
}

std::unique_ptr<Step> prepare_layer_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<LayerNormGrad>(0);
  return checked(kLayerGrad, [&] {
    auto chain = std::make_shared<PrimitiveChain>(binding);
    const auto image = matrix(op.rows(), op.width);
    const auto each = vector(op.rows()), weights = vector(op.width);
    const auto var = numbers(op.rows());
    const Flags flags = affine(op.gamma, op.dbeta);
    const dnnl::layer_normalization_forward::primitive_desc hint(
        {prop_kind::forward_training, image, each, kTiny, flags}, chain->engine());
    const dnnl::layer_normalization_backward::primitive_desc description(
        {prop_kind::backward, image, image, each, kTiny, flags}, chain->engine(), hint);
    Arguments arguments{{DNNL_ARG_SRC, chain->memory(image, binding.read(op.x))},
                        {DNNL_ARG_DIFF_DST, chain->memory(image, binding.read(op.dy))},
                        {DNNL_ARG_MEAN, chain->memory(each, binding.read(op.mean))},
                        {DNNL_ARG_VARIANCE, bound(*chain, each, *var)},
                        {DNNL_ARG_DIFF_SRC, chain->memory(image, binding.write(op.dx))}};
    if (op.gamma) {
      arguments.insert({DNNL_ARG_SCALE, chain->memory(weights, binding.read(op.gamma))});
      arguments.insert({DNNL_ARG_DIFF_SCALE, op.dgamma
                                                 ? chain->memory(weights, binding.write(op.dgamma))
                                                 : chain->memory(weights)});
    }
    if (op.dbeta) {
      arguments.insert({DNNL_ARG_SHIFT, chain->memory(weights)});  // required, but not read
      arguments.insert({DNNL_ARG_DIFF_SHIFT, chain->memory(weights, binding.write(op.dbeta))});
    }
    chain->add(dnnl::layer_normalization_backward(description), std::move(arguments));
    return around(chain, variances(binding.read(op.rstd), var), kNothing);
  });
}

}  // namespace

KernelTable onednn_norm_kernels() {
  KernelTable table;
  for (const Layout layout : {Layout::blocked, Layout::plain}) {
    table.push_back(in_layout("batch_norm", layout, covers_batch, prepare_batch));
    table.push_back(in_layout("batch_norm_grad", layout, covers_batch_grad, prepare_batch_grad));
    table.push_back(in_layout("batch_norm_infer", layout, covers_infer, prepare_infer));
  }
  table.push_back(onednn_kernel(kLayer, covers_layer, prepare_layer));
  table.push_back(onednn_kernel(kLayerGrad, covers_layer_grad, prepare_layer_grad));
  return table;
}

}  // namespace ridgeline::cpu

#endif
