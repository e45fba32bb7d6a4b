#include "ridgeline/nn/fold_norm.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ridgeline/nn/config_table.h"
#include "ridgeline/nn/layers.h"

namespace ridgeline::nn {
namespace {

bool has_filters(const Model& model, size_t layer) {
  const std::string type = model.layers()[layer]->type();
  // A linear layer's outputs are channels if each channel has one number.
  return type == "conv1d" || type == "conv2d" ||
         (type == "linear" && model.output_of(int(layer)).rank() == 1);
}

ConfigTable settings(const Layer& layer, const std::vector<std::string>& changes = {}) {
  return ConfigTable::parse("layer = " + layer.to_toml(), "layer", changes).table("layer");
}

// Returns, for each layer, the norm that is folded into it, or -1.
std::vector<int> find_norms(const Model& model) {
  const size_t count = model.layers().size();
  std::vector<int> readers(count), norm_of(count, -1);
  std::vector<bool> fixed(count);  // shares weights, or is a head
  for (size_t i = 0; i < count; ++i) {
    for (const int from : model.inputs_of(i)) {
      if (from >= 0) ++readers[size_t(from)];
    }
    const size_t owner = model.weights_of(i);
    if (owner != i) fixed[owner] = fixed[i] = true;
  }
  for (const Head& head : model.graph().heads()) fixed[size_t(head.layer)] = true;
  for (size_t i = 0; i < count; ++i) {
    const int from = model.inputs_of(i)[0];
    if (model.layers()[i]->type() != "batchnorm" || fixed[i] || from < 0) continue;
    const auto below = size_t(from);
    if (has_filters(model, below) && readers[below] == 1 && !fixed[below]) norm_of[below] = int(i);
  }
  return norm_of;
}

template <typename T>
std::vector<double> numbers(const Param& param) {
  const auto from = param.value.span<const T>();
  return {from.begin(), from.end()};
}

template <typename T>
void fold(const Model& from, size_t layer, size_t norm, Model& to, size_t first) {
  const size_t weight = from.first_param(layer), statistics = from.first_param(norm);
  const bool bias = from.first_param(layer + 1) - weight == 2;
  const bool affine = from.first_param(norm + 1) - statistics == 5;
  const auto norm_param = [&](size_t p) { return numbers<T>(from.params()[statistics + p]); };
  const std::vector<double> mean = norm_param(affine ? 2 : 0), var = norm_param(affine ? 3 : 1);
  const std::vector<double> gamma = affine ? norm_param(0) : std::vector<double>(mean.size(), 1.0);
  const std::vector<double> beta = affine ? norm_param(1) : std::vector<double>(mean.size(), 0.0);
  const std::vector<double> b =
      bias ? numbers<T>(from.params()[weight + 1]) : std::vector<double>(mean.size(), 0.0);
  const double epsilon = settings(*from.layers()[norm]).number("eps", 1e-5);
  const auto w = from.params()[weight].value.span<const T>();
  const auto folded = to.params()[first].value.template span<T>();
  const auto shift = to.params()[first + 1].value.template span<T>();
  const size_t each = w.size() / mean.size();
  for (size_t k = 0; k < mean.size(); ++k) {
    const double scale = gamma[k] / std::sqrt(var[k] + epsilon);
    for (size_t i = k * each; i < (k + 1) * each; ++i) folded[i] = T(double(w[i]) * scale);
    shift[k] = T((b[k] - mean[k]) * scale + beta[k]);
  }
}

}  // namespace

std::optional<FoldedModel> fold_norms(const Model& model) {
  const std::vector<int> norm_of = find_norms(model);
  if (std::ranges::all_of(norm_of, [](int norm) { return norm < 0; })) return std::nullopt;
  const size_t count = model.layers().size();
  std::vector<int> place(count, -1), kept;  // new position of a layer; a norm has that of its layer
  std::vector<GraphLayer> layers;
  for (size_t i = 0; i < count; ++i) {
    const GraphLayer& old = model.graph().layers()[i];
    const int below = old.inputs[0];
    if (below >= 0 && norm_of[size_t(below)] == int(i)) {
      place[i] = place[size_t(below)];
      continue;
    }
    GraphLayer layer = old;
    if (norm_of[i] >= 0) {
      ConfigTable table = settings(*old.layer, {"layer.bias=true"});
      layer.layer = read_layer(table);
    }
    for (int& input : layer.inputs) input = input < 0 ? input : place[size_t(input)];
    if (layer.weights_of >= 0) layer.weights_of = place[size_t(layer.weights_of)];
    place[i] = int(layers.size());
    layers.push_back(std::move(layer));
    kept.push_back(int(i));
  }
  std::vector<std::string> toml;
  for (const GraphLayer& layer : layers) toml.push_back(layer.layer->to_toml());
  std::vector<Head> heads = model.graph().heads();
  for (Head& head : heads) head.layer = place[size_t(head.layer)];
  const bool wide = std::ranges::any_of(
      model.params(), [](const Param& param) { return param.value.view().dtype == DType::fp64; });
  Model made({std::move(layers), std::move(toml), std::move(heads)}, model.input(),
             wide ? DType::fp64 : DType::fp32);
  for (size_t i = 0; i < kept.size(); ++i) {
    const auto old = size_t(kept[i]);
    const size_t from = model.first_param(old), to = made.first_param(i);
    if (norm_of[old] >= 0) {
      const auto norm = size_t(norm_of[old]);
      wide ? fold<double>(model, old, norm, made, to) : fold<float>(model, old, norm, made, to);
      continue;
    }
    for (size_t p = 0; p < made.first_param(i + 1) - to; ++p) {
      const Tensor& values = model.params()[from + p].value.view();
      if (values.bytes() == 0) continue;
      std::memcpy(made.params()[to + p].value.view().data, values.data, values.bytes());
    }
  }
  return FoldedModel{std::move(made), std::move(kept)};
}

}  // namespace ridgeline::nn
