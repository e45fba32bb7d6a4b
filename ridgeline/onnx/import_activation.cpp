#include <cmath>

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

}  // namespace ridgeline::onnx
