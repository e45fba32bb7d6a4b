#include "ridgeline/nn/model.h"

#include <fmt/format.h>

#include "ridgeline/core/host_memory.h"

namespace ridgeline::nn {

Outline outline(const std::vector<LayerPtr>& layers, const Shape& input) {
  if (layers.empty()) {
    throw_error(ErrorKind::usage, "the model has no layers; give it at least one");
  }
  int64_t depth = 0;
  for (const LayerPtr& layer : layers) depth += layer->depth();
  if (depth > kMostLayers) {
    throw_error(ErrorKind::usage, "the model has {} layers; at most {} are allowed", depth,
                kMostLayers);
  }
  Outline found{{input}, {}, {}};
  for (size_t i = 0; i < layers.size(); ++i) {
    const Layer& layer = *layers[i];
    try {
      found.shapes.push_back(layer.output(found.shapes[i]));
      found.first_param.push_back(found.params.size());
      for (ParamSpec& spec : layer.params(found.shapes[i])) {
        found.params.emplace_back(fmt::format("{}.{}", i, spec.suffix), std::move(spec));
      }
    } catch (const Error& error) {
      throw_error(ErrorKind::usage, "layer {} ({}) with input {}: {}", i, layer.type(),
                  to_string(found.shapes[i]), error.what());
    }
  }
  found.first_param.push_back(found.params.size());
  return found;
}

Model::Model(std::vector<LayerPtr> layers, const Shape& input, DType weights)
    : layers_(std::move(layers)) {
  Outline found = outline(layers_, input);
  shapes_ = std::move(found.shapes);
  first_param_ = std::move(found.first_param);
  for (auto& [name, spec] : found.params) {
    const DType dtype = spec.kind == ParamKind::counter ? DType::int64 : weights;
    require_host_memory(
        size_t(checked_mul(spec.shape.numel(), int64_t(size_of(dtype)), name.c_str())),
        "use smaller layers");
    params_.push_back({name, spec.init, spec.fans, HostTensor(dtype, spec.shape), spec.kind});
  }
}

int64_t Model::parameter_count() const {
  int64_t count = 0;
  for (const Param& param : params_) {
    if (param.trained()) count += param.value.view().numel();
  }
  return count;
}

void Model::initialise(uint64_t seed) {
  for (size_t i = 0; i < params_.size(); ++i) {
    const Param& param = params_[i];
    if (param.kind == ParamKind::counter) {
      *param.value.view().as<int64_t>() = 0;
      continue;
    }
    fill(param.init, param.fans, seed, i, param.value.view());
  }
}

}  // namespace ridgeline::nn
