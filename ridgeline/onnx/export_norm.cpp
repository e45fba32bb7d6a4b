#include <cmath>

#include "ridgeline/onnx/exporter.h"

namespace ridgeline::onnx {
namespace {}  // namespace

bool Exporter::activation(nn::ConfigTable& table, const std::string& type) {
  constexpr std::pair<const char*, const char*> kSame[] = {
      {"relu", "Relu"}, {"tanh", "Tanh"},   {"sigmoid", "Sigmoid"}, {"softplus", "Softplus"},
      {"exp", "Exp"},   {"log", "Log"},     {"sqrt", "Sqrt"},       {"reciprocal", "Reciprocal"},
      {"sin", "Sin"},   {"floor", "Floor"}, {"round", "Round"}};
  if (type == "round" && graph_.opset() < 11) {
    throw_error(ErrorKind::usage, "layer {} (round): needs --opset 11 or more", path());
  }
  for (const auto& [ours, op] : kSame) {
    if (type != ours) continue;
    x_ = graph_.node(op, {x_});
    return true;
  }
  if (type == "leaky_relu") {
    x_ = graph_.node("LeakyRelu", {x_}, {{"alpha", table.number("slope", std::nullopt)}});
  } else if (type == "elu") {
    x_ = graph_.node("Elu", {x_}, {{"alpha", table.number("alpha", std::nullopt)}});
  } else if (type == "silu") {
    x_ = graph_.node("Mul", {x_, graph_.node("Sigmoid", {x_})});
  } else if (type == "step") {
    const std::string above = graph_.node("Greater", {x_, graph_.scalar(0)});
    x_ = graph_.node("Cast", {above}, {{"to", int64_t{Proto::FLOAT}}});
  } else if (type == "hardswish") {
    x_ = graph_.opset() >= 14
             ? graph_.node("HardSwish", {x_})
             : graph_.node("Mul", {x_, graph_.node("HardSigmoid", {x_},
                                                   {{"alpha", 1.0 / 6}, {"beta", 0.5}})});
  } else if (type == "gelu" && graph_.opset() >= 20) {
    x_ = graph_.node("Gelu", {x_});
  } else if (type == "gelu") {
    if (graph_.opset() < 9) {
      throw_error(ErrorKind::usage, "layer {} (gelu): needs --opset 9 or more", path());
    }
    const std::string erf =
        graph_.node("Erf", {graph_.node("Div", {x_, graph_.scalar(std::sqrt(2.0))})});
    const std::string sum = graph_.node("Add", {erf, graph_.scalar(1)});
    x_ = graph_.node("Mul", {graph_.node("Mul", {x_, sum}), graph_.scalar(0.5)});
  } else {
    return false;
  }
  return true;
}

bool Exporter::normalisation(nn::ConfigTable& table, const std::string& type) {
  if (type == "layernorm") {
    layer_norm(table);
  } else if (type == "batchnorm") {
    batch_norm(table);
  } else if (type == "groupnorm") {
    group_norm(table);
  } else if (type == "rmsnorm") {
    rms_norm(table);
  } else {
    return false;
  }
  return true;
}

std::string Exporter::mean_of_last(const std::string& x, int64_t axes) {
  Ints which;
  const int64_t rank = shape_.rank() + 1;
  for (int64_t i = -axes; i < 0; ++i) which.push_back(graph_.opset() < 11 ? rank + i : i);
  if (graph_.opset() >= 18) return graph_.node("ReduceMean", {x, graph_.ints(which)});
  return graph_.node("ReduceMean", {x}, {{"axes", which}});
}

void Exporter::layer_norm(nn::ConfigTable& table) {
  int64_t axes = table.integer("dims", 0);
  if (axes == 0) axes = shape_.rank();
  const double epsilon = table.number("eps", std::nullopt);
  const Ints last(shape_.dims().end() - axes, shape_.dims().end());
  const auto count = size_t(Shape(last).numel());
  const auto affine = [&](const char* suffix, float number) {
    return has(suffix) ? weight(suffix) : graph_.floats(last, std::vector<float>(count, number));
  };
  if (graph_.opset() >= 17) {
    x_ = graph_.node("LayerNormalization", {x_, affine("weight", 1), affine("bias", 0)},
                     {{"axis", -axes}, {"epsilon", epsilon}});
    return;
  }
  const std::string centred = graph_.node("Sub", {x_, mean_of_last(x_, axes)});
  const std::string variance = mean_of_last(graph_.node("Mul", {centred, centred}), axes);
  const std::string deviation =
      graph_.node("Sqrt", {graph_.node("Add", {variance, graph_.scalar(epsilon)})});
  const std::string scaled = graph_.node("Div", {centred, deviation});
  x_ = graph_.node("Add", {graph_.node("Mul", {scaled, affine("weight", 1)}), affine("bias", 0)});
}

void Exporter::rms_norm(nn::ConfigTable& table) {
  int64_t axes = table.integer("dims", 0);
  if (axes == 0) axes = shape_.rank();
  const std::string square = mean_of_last(graph_.node("Mul", {x_, x_}), axes);
  const std::string epsilon = graph_.scalar(table.number("eps", std::nullopt));
  const std::string root = graph_.node("Sqrt", {graph_.node("Add", {square, epsilon})});
  x_ = graph_.node("Div", {x_, root});
  if (has("weight")) x_ = graph_.node("Mul", {x_, weight("weight")});
}

void Exporter::batch_norm(nn::ConfigTable& table) {
  const int64_t channels = shape_[0];
  x_ = graph_.node("BatchNormalization",
                   {x_, weight_or("weight", channels, 1), weight_or("bias", channels, 0),
                    weight("running_mean"), weight("running_var")},
                   {{"epsilon", table.number("eps", std::nullopt)}});
}

// Uses PyTorch's form: a group is an instance of its own, then each channel is scaled. The operator
// that ONNX has since opset 18 changed its meaning in opset 21.
void Exporter::group_norm(nn::ConfigTable& table) {
  const Ints whole = sample();
  const int64_t groups = table.integer("groups", std::nullopt), channels = whole[0];
  reshape({groups, shape_.numel() / groups});
  const auto all = [&](float number) {
    return graph_.floats({groups}, std::vector<float>(size_t(groups), number));
  };
  x_ = graph_.node("InstanceNormalization", {x_, all(1), all(0)},
                   {{"epsilon", table.number("eps", std::nullopt)}});
  if (whole.size() == 1) {
    x_ = graph_.node("Reshape", {x_, graph_.ints({-1, channels})});
    shape_ = {channels};
  } else {
    reshape(whole);
  }
  if (!has("weight")) return;
  Ints by_channel(whole.size(), 1);
  by_channel[0] = channels;
  const auto scaled = [&](const char* suffix) {
    return graph_.weight(path() + "." + suffix, by_channel, values(suffix));
  };
  x_ = graph_.node("Mul", {x_, scaled("weight")});
  x_ = graph_.node("Add", {x_, scaled("bias")});
}

}  // namespace ridgeline::onnx
