#include <cmath>
#include <limits>
#include <numbers>

#include "ridgeline/nn/config_table.h"
#include "ridgeline/onnx/composition.h"
#include "ridgeline/onnx/importer.h"

namespace ridgeline::onnx {
namespace {

struct ActivationOperator {
  const char* op;
  const char* layer;
  const char* attribute = nullptr;  // ONNX's name of its parameter
  const char* setting = nullptr;    // our name of it
  double standard = 0;
};

constexpr ActivationOperator kActivations[] = {
    {"Relu", "relu"},
    {"Sigmoid", "sigmoid"},
    {"Tanh", "tanh"},
    {"Softplus", "softplus"},
    {"HardSwish", "hardswish"},
    {"Gelu", "gelu"},
    {"Silu", "silu"},
    {"LeakyRelu", "leaky_relu", "alpha", "slope", 0.01},
    {"Elu", "elu", "alpha", "alpha", 1.0},
    {"Exp", "exp"},
    {"Log", "log"},
    {"Sqrt", "sqrt"},
    {"Reciprocal", "reciprocal"},
    {"Sin", "sin"},
    {"Floor", "floor"},
    {"Round", "round"},
    {"Step", "step"},
};

// An attribute is an fp32 number: the shortest decimal that reads back as it.
std::string decimal(double number) {
  return nn::toml_number(std::stod(fmt::format("{}", float(number))));
}

// y = 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
void add_tanh_gelu(Importer& in, const View& view) {
  const Shape shape = in.stored();
  const int x = in.source();
  const double scale = std::sqrt(2 / std::numbers::pi);
  add_joined(in, "multiply", {x, x, x});
  add_affine(in, view, 0.044715 * scale, 0);
  const int cube = in.source();
  in.resume(x, shape);
  add_affine(in, view, scale, 0);
  add_joined(in, "add", {cube, in.source()});
  add_activation(in, "tanh");
  add_affine(in, view, 0.5, 0.5);
  add_joined(in, "multiply", {x, in.source()});
}

// Returns x - bias above lambd, x + bias below -lambd, and 0 between.
void shrink_in_steps(Importer& in) {
  const Node& node = in.node();
  const std::string& x = node.input(0);
  Composition make(in);
  const std::string lambda = make.number(node.number("lambd", 0.5));
  const std::string bias = make.number(node.number("bias", 0));
  const std::string above = make.add("Step", {make.add("Sub", {x, lambda})});
  const std::string below = make.add("Step", {make.add("Sub", {make.add("Neg", {x}), lambda})});
  make.finish("Add", {make.add("Mul", {above, make.add("Sub", {x, bias})}),
                      make.add("Mul", {below, make.add("Add", {x, bias})})});
}

}  // namespace

void add_activation(Importer& in, const char* kind) {
  Draft draft;
  draft.type = kind;
  in.add(std::move(draft));
}

void import_activation(Importer& in) {
  const Node& node = in.node();
  const View view = in.take(0).view;
  for (const ActivationOperator& each : kActivations) {
    if (node.op != each.op) continue;
    if (node.op == "Gelu" && node.text("approximate", "none") != "none") {
      in.apply_softmax();
      add_tanh_gelu(in, view);
      return in.give(view);
    }
    Draft draft;
    draft.type = each.layer;
    if (each.attribute != nullptr) {
      draft.set(each.setting, decimal(node.number(each.attribute, each.standard)));
    }
    in.add(std::move(draft));
    in.give(view);
    return;
  }
  in.refuse("this operator is not known here");
}

void import_composed_activation(Importer& in) {
  const Node& node = in.node();
  const View view = in.take(0).view;
  in.apply_softmax();
  const int x = in.source();
  const Shape shape = in.stored();
  const auto elu = [&](double alpha) {
    Draft draft;
    draft.type = "elu";
    draft.set("alpha", decimal(alpha));
    in.add(std::move(draft));
  };
  if (node.op == "Neg") {
    add_affine(in, view, -1, 0);
  } else if (node.op == "Abs") {  // relu(x) + relu(-x)
    add_activation(in, "relu");
    const int positive = in.source();
    in.resume(x, shape);
    add_affine(in, view, -1, 0);
    add_activation(in, "relu");
    add_joined(in, "add", {positive, in.source()});
  } else if (node.op == "Selu") {
    elu(node.number("alpha", 1.67326319217681884765625));
    add_affine(in, view, node.number("gamma", 1.05070102214813232421875), 0);
  } else if (node.op == "Celu") {  // a elu(x / a)
    const double alpha = node.number("alpha", 1);
    if (!(alpha > 0)) in.refuse("alpha is not above 0");
    add_affine(in, view, 1 / alpha, 0);
    elu(1);
    add_affine(in, view, alpha, 0);
  } else if (node.op == "LogSigmoid") {  // -softplus(-x)
    add_affine(in, view, -1, 0);
    add_activation(in, "softplus");
    add_affine(in, view, -1, 0);
  } else if (node.op == "Shrink" && node.number("bias", 0) != node.number("lambd", 0.5)) {
    return shrink_in_steps(in);
  } else if (node.op == "Shrink") {  // relu(x - lambd) - relu(-x - lambd)
    const double lambda = node.number("lambd", 0.5);
    if (lambda < 0) in.refuse("lambd is below 0");
    add_affine(in, view, 1, -lambda);
    add_activation(in, "relu");
    const int positive = in.source();
    in.resume(x, shape);
    add_affine(in, view, -1, -lambda);
    add_activation(in, "relu");
    add_affine(in, view, -1, 0);
    add_joined(in, "add", {positive, in.source()});
  } else if (node.op == "Mish") {  // x tanh(softplus(x))
    add_activation(in, "softplus");
    add_activation(in, "tanh");
    add_joined(in, "multiply", {x, in.source()});
  } else {  // Swish, x sigmoid(a x) = silu(a x) / a
    const double alpha = node.number("alpha", 1);
    if (alpha == 0) in.refuse("alpha is 0");
    add_affine(in, view, alpha, 0);
    add_activation(in, "silu");
    add_affine(in, view, 1 / alpha, 0);
  }
  in.give(view);
}

// relu(x) - slope relu(-x)
void import_prelu(Importer& in) {
  const View view = in.take(0).view;
  in.apply_softmax();
  const ConstantPtr given = in.require_known(1);
  Constant slopes = *given;
  // Before opset 7 it was one for all or one for each channel.
  if (in.opset() < 7 && slopes.dims.size() == 1 && view.dims.size() > 2) {
    slopes.dims.resize(view.dims.size() - 1, 1);
  }
  Broadcast slope = read_broadcast(slopes, view);
  const int x = in.source();
  const Shape shape = in.stored();
  add_activation(in, "relu");
  const int positive = in.source();
  in.resume(x, shape);
  add_affine(in, view, -1, 0);
  add_activation(in, "relu");
  for (double& each : slope.numbers) each = -each;
  const size_t count = slope.numbers.size();
  add_affine(in, view, slope.kind, std::move(slope.numbers), std::vector<double>(count, 0.0));
  in.shape_input(shape);
  add_joined(in, "add", {positive, in.source()});
  in.give(view);
}

// min(max(x, low), high) = high - relu(high - low - relu(x - low)), after x * alpha + beta for
// HardSigmoid.
void import_clip(Importer& in) {
  const Node& node = in.node();
  const View view = in.take(0).view;
  const bool sigmoid = node.op == "HardSigmoid";
  constexpr double kNone = std::numeric_limits<float>::max();
  constexpr double kFar = 1e30;  // no bound, as exporters write it
  constexpr double kMost = 1e3;  // a shift by it rounds by 6e-5
  const auto bound = [&](size_t input, const char* name, double none) {
    if (sigmoid) return none > 0 ? 1.0 : 0.0;
    const ConstantPtr number = !node.has(name) && in.has(input) ? in.require_known(input) : nullptr;
    if (number && number->kept() == 0) in.refuse("a bound holds no number");
    const double given = number ? number->number(0) : node.number(name, none);
    if (std::abs(given) >= kFar && (given > 0) == (none > 0)) return none;
    if (std::abs(given) > kMost)
      in.refuse("its bounds are so large that shifts by them lose digits");
    return given;
  };
  const double low = bound(1, "min", -kNone), high = bound(2, "max", kNone);
  if (low >= high) in.refuse("its bounds leave nothing between them");
  if (low <= -kNone) {  // min(x, high) = high - relu(high - x)
    if (high < kNone) {
      add_affine(in, view, -1, high);
      add_activation(in, "relu");
      add_affine(in, view, -1, high);
    }
    return in.give(view);
  }
  const double scale = sigmoid ? node.number("alpha", 0.2) : 1.0;
  const double shift = (sigmoid ? node.number("beta", 0.5) : 0.0) - low;
  add_affine(in, view, scale, shift);
  add_activation(in, "relu");
  if (high < kNone) {
    add_affine(in, view, -1, high - low);
    add_activation(in, "relu");
    add_affine(in, view, -1, high);
  } else {
    add_affine(in, view, 1, low);
  }
  in.give(view);
}

}  // namespace ridgeline::onnx
