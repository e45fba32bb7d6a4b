#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "ridgeline/onnx/composition.h"
#include "ridgeline/onnx/fold.h"
#include "ridgeline/onnx/importer.h"

// Functions of single numbers, comparisons and choices. A truth value is 1 or 0.
namespace ridgeline::onnx {
namespace {

// Returns the name of an operand: a constant as floats, because those of truth values are integers.
std::string as_floats(Importer& in, Composition& make, size_t input) {
  if (!in.is_known(input)) return in.node().input(input);
  const ConstantPtr known = in.require_known(input);
  auto made = std::make_shared<Constant>(*known);
  made->floats.clear();
  for (int64_t i = 0; i < known->kept(); ++i) {
    if (!std::isfinite(known->number(i))) in.refuse("computes with a number that is not finite");
    made->floats.push_back(float(known->number(i)));
  }
  made->ints.clear();
  made->integer = false;
  return make.constant(std::move(made));
}

// The difference from 0.5 has one of two values, so that the result is exact.
std::string opposite(Composition& make, const std::string& truth) {
  return make.add("Step", {make.add("Sub", {make.number(0.5), truth})});
}

}  // namespace

void import_function(Importer& in) {
  const std::string &op = in.node().op, &x = in.node().input(0);
  Composition make(in);
  if (op == "Ceil") {  // -floor(-x)
    make.finish("Neg", {make.add("Floor", {make.add("Neg", {x})})});
  } else if (op == "Cos") {
    make.finish("Sin", {make.add("Add", {x, make.number(std::numbers::pi / 2)})});
  } else if (op == "Sign") {
    make.finish("Sub", {make.add("Step", {x}), make.add("Step", {make.add("Neg", {x})})});
  } else if (op == "Softsign") {  // x / (1 + |x|)
    const std::string sum = make.add("Add", {make.add("Abs", {x}), make.number(1)});
    make.finish("Div", {x, sum});
  } else {  // ThresholdedRelu
    const std::string bound = make.number(in.node().number("alpha", 1));
    make.finish("Mul", {x, make.add("Step", {make.add("Sub", {x, bound})})});
  }
}

void import_comparison(Importer& in) {
  const std::string& op = in.node().op;
  Composition make(in);
  const std::string a = as_floats(in, make, 0), b = as_floats(in, make, 1);
  const auto step = [&](const std::string& more, const std::string& less) {
    return make.add("Step", {make.add("Sub", {more, less})});
  };
  if (op == "Greater") return make.finish("Step", {make.add("Sub", {a, b})});
  if (op == "Less") return make.finish("Step", {make.add("Sub", {b, a})});
  std::string wrong;
  if (op != "GreaterOrEqual") wrong = step(a, b);
  if (op != "LessOrEqual") {
    const std::string below = step(b, a);
    wrong = wrong.empty() ? below : make.add("Add", {wrong, below});
  }
  make.finish("Step", {make.add("Sub", {make.number(0.5), wrong})});
}

void import_logic(Importer& in) {
  const std::string& op = in.node().op;
  Composition make(in);
  const std::string a = as_floats(in, make, 0);
  if (op == "Not") return make.finish("Step", {make.add("Sub", {make.number(0.5), a})});
  const std::string b = as_floats(in, make, 1);
  if (op == "And") return make.finish("Mul", {a, b});
  if (op == "Or") return make.finish("Step", {make.add("Add", {a, b})});
  const std::string difference = make.add("Sub", {a, b});  // Xor
  make.finish("Mul", {difference, difference});
}

namespace {

// condition * a + (1 - condition) * b
void choose_by_value(Importer& in) {
  Composition make(in);
  const std::string& condition = in.node().input(0);
  std::vector<std::string> parts;
  for (const size_t i : {size_t{1}, size_t{2}}) {
    if (in.is_known(i) && in.known(i)->all_zero()) continue;
    const std::string value = as_floats(in, make, i);
    parts.push_back(make.add("Mul", {i == 1 ? condition : opposite(make, condition), value}));
  }
  if (parts.empty()) in.refuse("chooses between zeros");
  parts.size() == 1 ? make.finish("Identity", parts) : make.finish("Add", parts);
}

}  // namespace

// Its probability is 0 either way. A row of nothing else has none.
ConstantPtr Importer::finite_before_softmax(ConstantPtr value) const {
  constexpr float kBelow = -1e30f;
  const auto is_below = [](float each) { return std::isinf(each) && each < 0; };
  if (std::ranges::none_of(value->floats, is_below)) return value;
  const std::string& sum = node_->outputs[0];
  int softmaxes = 0;
  for (const Node& reader : graph_.nodes) {
    const bool reads = std::ranges::find(reader.inputs, sum) != reader.inputs.end();
    const bool softmax =
        reader.op == "Softmax" && opset() >= 13 && reader.integer("axis", -1) == -1;
    softmaxes += reads && softmax ? 1 : 0;
  }
  if (value->dims.empty() || softmaxes == 0 || reads_.at(sum) != softmaxes) {
    refuse("adds minus infinity elsewhere than before a softmax of the last dimension");
  }
  auto made = std::make_shared<Constant>(*value);
  const auto row = made->uniform ? 1 : made->dims.back();
  for (auto at = made->floats.begin(); at != made->floats.end(); at += row) {
    if (std::all_of(at, at + row, is_below)) refuse("leaves nothing for a softmax to choose from");
    std::replace_if(at, at + row, is_below, kBelow);
  }
  return made;
}

// A choice by a constant condition is c x + (1 - c) y. A constant choice goes into the sum.
void import_where(Importer& in) {
  const Node& node = in.node();
  if (!in.is_known(0) && !in.repeated(0)) return choose_by_value(in);
  const ConstantPtr condition = in.require_known(0);
  if (!condition->integer || condition->ints.empty()) in.refuse("its condition is no list");
  Composition make(in);
  std::vector<std::string> parts;
  for (const size_t i : {size_t{1}, size_t{2}}) {
    // Where it is not chosen, a constant is zero and a value is multiplied by zero.
    const auto masked = [&](ConstantPtr value) {
      const ConstantPtr zero = make_floats({}, {0.0f});
      const std::vector<ConstantPtr> inputs{condition, i == 1 ? value : zero,
                                            i == 1 ? zero : value};
      const ConstantPtr made = fold(node, inputs, int64_t{1} << 22);
      if (!made) in.refuse("its condition does not fit its values");
      const ConstantPtr finite = in.finite_before_softmax(made);
      for (int64_t at = 0; at < finite->numel(); ++at) {
        if (!std::isfinite(finite->number(at))) in.refuse("chooses a number that is not finite");
      }
      return make.constant(finite);
    };
    if (in.is_known(i)) {
      parts.push_back(masked(in.require_known(i)));
    } else {
      parts.push_back(make.add("Mul", {node.input(i), masked(make_floats({}, {1.0f}))}));
    }
  }
  make.finish("Add", parts);
}

void import_power(Importer& in) {
  Composition make(in);
  const std::string& x = in.node().input(0);
  if (in.is_known(0)) {  // a^x = exp(x log a)
    const ConstantPtr base = in.require_known(0);
    if (base->numel() != 1 || !(base->number(0) > 0)) {
      in.refuse("raises a constant that is no positive number to a power");
    }
    const std::string exponent = in.node().input(1), log = make.number(std::log(base->number(0)));
    return make.finish("Exp", {make.add("Mul", {exponent, log})});
  }
  const ConstantPtr power = in.require_known(1);
  if (power->numel() != 1) in.refuse("raises numbers to different powers");
  const double p = power->number(0);
  constexpr double kMostFactors = 8;
  if (p == 0.5) return make.finish("Sqrt", {x});
  if (p == 1) return make.finish("Identity", {x});
  if (p < 0) {
    return make.finish("Reciprocal", {make.add("Pow", {x, make.number(-p)})});
  }
  if (p != std::floor(p)) {  // NaN below 0, as the operator gives
    return make.finish("Exp", {make.add("Mul", {make.add("Log", {x}), make.number(p)})});
  }
  if (p < 1 || p > kMostFactors) in.refuse(fmt::format("raises numbers to the power of {}", p));
  const View view = in.straighten(in.take(0).view);
  in.keep_input_shape();
  const std::vector<int64_t> sample = view.sample();
  in.shape_input(sample.empty() ? Shape{1} : Shape(sample));
  in.apply_softmax();
  add_joined(in, "multiply", std::vector<int>(size_t(p), in.source()));
  in.give(view);
}

}  // namespace ridgeline::onnx
