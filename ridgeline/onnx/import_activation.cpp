#include <cmath>
#include <limits>

#include "ridgeline/nn/config_table.h"
#include "ridgeline/onnx/importer.h"

namespace ridgeline::onnx {
namespace {

struct ActivationOperator {
  const char* op;
  const char* layer;
  const char* attribute = nullptr;  // what ONNX calls its number
  const char* setting = nullptr;    // what we call it
  double standard = 0;
};

constexpr ActivationOperator kOperators[] = {
    {"Relu", "relu"},
    {"Sigmoid", "sigmoid"},
    {"Tanh", "tanh"},
    {"Softplus", "softplus"},
    {"HardSwish", "hardswish"},
    {"Gelu", "gelu"},
    {"Silu", "silu"},
    {"LeakyRelu", "leaky_relu", "alpha", "slope", 0.01},
    {"Elu", "elu", "alpha", "alpha", 1.0},
};

}  // namespace

void import_activation(Importer& in) {
  const Node& node = in.node();
  const View view = in.take(0).view;
  for (const ActivationOperator& each : kOperators) {
    if (node.op != each.op) continue;
    if (node.op == "Gelu" && node.text("approximate", "none") != "none") {
      in.refuse("the tanh approximation of GELU is not computed here");
    }
    Draft draft;
    draft.type = each.layer;
    if (each.attribute != nullptr) {
      // An attribute is an fp32 number: the shortest decimal that reads back as it.
      const auto number = float(node.number(each.attribute, each.standard));
      draft.set(each.setting, nn::toml_number(std::stod(fmt::format("{}", number))));
    }
    in.add(std::move(draft));
    in.give(view);
    return;
  }
  in.refuse("this operator is not known here");
}

namespace {

void add_relu(Importer& in) {
  Draft draft;
  draft.type = "relu";
  in.add(std::move(draft));
}

}  // namespace

// min(max(x, low), high) = high - relu(high - low - relu(x - low)), after x * alpha + beta for
// HardSigmoid.
void import_clip(Importer& in) {
  const Node& node = in.node();
  const View view = in.take(0).view;
  const bool sigmoid = node.op == "HardSigmoid";
  const auto bound = [&](size_t input, const char* name, double none) {
    if (sigmoid) return none > 0 ? 1.0 : 0.0;
    if (node.has(name)) return node.number(name, none);
    return in.has(input) ? in.require_known(input)->number(0) : none;
  };
  constexpr double kNone = std::numeric_limits<float>::max();
  const double low = bound(1, "min", -kNone), high = bound(2, "max", kNone);
  if (low >= high) in.refuse("its bounds leave nothing between them");
  if (low <= -kNone) in.refuse("has no lower bound");
  const double scale = sigmoid ? node.number("alpha", 0.2) : 1.0;
  const double shift = (sigmoid ? node.number("beta", 0.5) : 0.0) - low;
  const auto affine = [&](double by, double added) {
    if (by != 1 || added != 0) add_affine(in, view, std::nullopt, {by}, {added});
  };
  affine(scale, shift);
  add_relu(in);
  if (high < kNone) {
    affine(-1, high - low);
    add_relu(in);
    affine(-1, high);
  } else {
    affine(1, low);
  }
  in.give(view);
}

}  // namespace ridgeline::onnx
