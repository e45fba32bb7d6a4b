#include "ridgeline/nn/model.h"

#include <fmt/format.h>

namespace ridgeline::nn {

Model::Model(std::vector<LayerPtr> layers, const Shape& input, DType weights)
    : layers_(std::move(layers)), shapes_{input} {
  if (layers_.empty()) {
    throw_error(ErrorKind::usage, "the model has no layers; give it at least one");
  }
  std::vector<std::pair<std::string, ParamSpec>> specs;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = *layers_[i];
    try {
      shapes_.push_back(layer.output(shapes_[i]));
      first_param_.push_back(specs.size());
      for (ParamSpec& spec : layer.params(shapes_[i])) {
        specs.emplace_back(fmt::format("{}.{}", i, spec.suffix), std::move(spec));
      }
    } catch (const Error& error) {
      throw_error(ErrorKind::usage, "layer {} ({}) with input {}: {}", i, layer.type(),
                  to_string(shapes_[i]), error.what());
    }
  }
  first_param_.push_back(specs.size());
  for (auto& [name, spec] : specs) {
    params_.push_back({name, spec.init, spec.fans, HostTensor(weights, spec.shape)});
  }
}

int64_t Model::parameter_count() const {
  int64_t count = 0;
  for (const Param& param : params_) count += param.value.view().numel();
  return count;
}

void Model::initialise(uint64_t seed) {
  for (size_t i = 0; i < params_.size(); ++i) {
    const Param& param = params_[i];
    fill(param.init, param.fans, seed, i, param.value.view());
  }
}

}  // namespace ridgeline::nn
