#include "ridgeline/cuda/generate/conv_plan.h"

namespace ridgeline::cuda::generate {

std::optional<Math> math_of(DType dtype, Precision precision) {
  switch (dtype) {
    case DType::bf16:
      return Math::bf16;
    case DType::fp16:
      return Math::fp16;
    case DType::fp32:
      return precision == Precision::tf32 ? Math::tf32 : Math::fp32;
    case DType::fp64:
      return Math::fp64;
    default:
      return {};
  }
}

namespace {

// Why the types of weights and states do not fit. Weights have the type of the values, or are kept
// in fp32 with copies for products; biases have no copies. Gradients are never stored, so their
// type does not matter.
std::string refuse_types(const NetStep& net) {
  const DType dtype = net.inputs->y.dtype;
  const DType accumulator = dtype == DType::fp64 ? DType::fp64 : DType::fp32;
  const DType kept = net.copies ? accumulator : dtype;
  const auto fits = [&](const auto& w, const auto* b) {
    return w.w.dtype == kept && bool(w.copy) == net.copies &&
           (b == nullptr || (b->w.dtype == kept && !b->copy));
  };
  const auto refuse = [&](const auto& layer, const auto& op) -> std::string {
    const bool good = layer.adam_w != nullptr ? fits(*layer.adam_w, layer.adam_b)
                                              : fits(*layer.sgd_w, layer.sgd_b);
    const bool states =
        layer.adam_w != nullptr
            ? layer.adam_w->m.dtype == accumulator && layer.adam_w->v.dtype == accumulator
            : !layer.sgd_w->m || layer.sgd_w->m.dtype == accumulator;
    if (!good || op.w.dtype != dtype || op.y.dtype != dtype) {
      return "wants weights of the values' type, or in fp32 with copies of all but the biases";
    }
    if (!states) return "wants optimizer state in the type of sums";
    if (!layer.norm) return {};
    for (const Value& parameter : {layer.norm.gamma(), layer.norm.beta()}) {
      if (parameter && parameter.dtype != kept)
        return "wants a normalisation's weights like biases";
    }
    return {};
  };
  for (const NetLayer& layer : net.layers) {
    if (std::string reason = refuse(layer, *layer.linear); !reason.empty()) return reason;
  }
  for (const MlpStepOps::Convolution& layer : net.convolutions) {
    if (std::string reason = refuse(layer, *layer.conv); !reason.empty()) return reason;
  }
  return {};
}

}  // namespace

const Value& NetStep::loss() const {
  return xent != nullptr ? xent->loss : mse != nullptr ? mse->loss : elementwise->loss;
}

const Value& NetStep::correct() const {
  return xent != nullptr ? xent->correct : mse != nullptr ? mse->correct : elementwise->correct;
}

double NetStep::scale() const {
  return xent != nullptr ? xent->scale : mse != nullptr ? mse->scale : elementwise->scale;
}

int64_t NetStep::target_columns() const {
  const Value& target = targets->y;
  return target.dtype == DType::int32 ? 0 : target.shape.numel() / target.shape[0];
}

NetStep match_net_step(const RemainingOps& rest) {
  constexpr MlpStepExtras kAll{.adam = true,
                               .dropout = true,
                               .bare_layers = true,
                               .floats = true,
                               .losses = true,
                               .norm = true,
                               .norms = true,
                               .convolutions = true};
  NetStep net;
  if (rest.begin != 0) {
    net.refusal = "covers whole programs only";
    return net;
  }
  static_cast<MlpStepOps&>(net) = match_mlp_step(rest, kAll);
  if (!net.refusal.empty()) return net;
  const auto math = math_of(net.inputs->y.dtype, rest.program.precision);
  if (!math) {
    net.refusal = "takes floating-point values only";
  } else if (net.ops != rest.size()) {
    net.refusal = "covers whole programs only";
  } else {
    net.math = *math;
    net.refusal = refuse_types(net);
    if (net.refusal.empty()) net.refusal = refuse_convolutions(net);
  }
  return net;
}

}  // namespace ridgeline::cuda::generate
