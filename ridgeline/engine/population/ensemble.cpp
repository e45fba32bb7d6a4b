#include "ridgeline/engine/population/ensemble.h"

#include <cstring>

#include "ridgeline/engine/model_io.h"
#include "ridgeline/nn/join.h"
#include "ridgeline/nn/safetensors.h"
#include "ridgeline/nn/softmax.h"

namespace ridgeline::engine {
namespace {

// Joins the members' nets side by side: each one's outputs become probabilities if `loss` is one of
// classes or labels, followed by their mean.
nn::Graph joined(std::span<const LoadedModel> members, nn::LossKind loss) {
  const bool labels = loss == nn::LossKind::binary_cross_entropy;
  std::vector<nn::LayerPtr> layers;
  std::vector<std::vector<int>> inputs;
  std::vector<int> ends;
  for (const LoadedModel& member : members) {
    const int first = int(layers.size());
    for (const nn::GraphLayer& each : member.model.graph().layers()) {
      layers.push_back(each.layer);
      inputs.push_back(each.inputs);
      for (int& from : inputs.back()) {
        if (from != nn::kGraphInput) from += first;
      }
    }
    if (labels || loss == nn::LossKind::cross_entropy) {
      layers.push_back(std::make_shared<nn::SoftmaxLayer>(labels));
      inputs.push_back({int(layers.size()) - 2});
    }
    ends.push_back(int(layers.size()) - 1);
  }
  layers.push_back(std::make_shared<nn::JoinLayer>(nn::JoinKind::mean));
  inputs.push_back(ends);
  return {layers, inputs};
}

void check_members(std::span<const LoadedModel> members) {
  if (members.size() < 2) {
    throw_error(ErrorKind::usage, "an ensemble takes two models or more, not {}", members.size());
  }
  const LoadedModel& first = members.front();
  for (const LoadedModel& each : members) {
    if (each.config.train.loss.kind != first.config.train.loss.kind ||
        each.classes != first.classes || each.config.data.name != first.config.data.name ||
        !(each.model.input() == first.model.input()) ||
        each.config.run.precision != first.config.run.precision ||
        each.scaling.scale != first.scaling.scale || each.scaling.shift != first.scaling.shift) {
      throw_error(ErrorKind::usage,
                  "an ensemble joins models of one data set, preparation, loss and precision");
    }
  }
}

}  // namespace

std::vector<std::byte> make_ensemble(std::span<const std::vector<std::byte>> models) {
  std::vector<LoadedModel> members;
  for (size_t i = 0; i < models.size(); ++i) {
    members.push_back(load_model(models[i], fmt::format("member {} of the ensemble", i), {}));
  }
  check_members(members);
  const LoadedModel& first = members.front();
  Config config = first.config;
  config.layers = joined(members, config.train.loss.kind);
  nn::Model model = config.build_model(first.model.input());
  size_t at = 0;
  for (const LoadedModel& member : members) {
    for (const nn::Param& param : member.model.params()) {
      const Tensor& from = param.value.view();
      std::memcpy(model.params()[at++].value.view().data, from.data, from.bytes());
    }
  }
  return nn::to_safetensors(
      nn::model_tensors(model),
      describe_model(model, config, first.scaling, first.classes, first.symbols,
                     first.preparation ? &*first.preparation : nullptr));
}

}  // namespace ridgeline::engine
