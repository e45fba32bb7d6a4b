#include "ridgeline/serve/model_outputs.h"

#include <algorithm>

namespace ridgeline::serve {
namespace {

std::vector<std::string> names_of_classes(const engine::LoadedModel& model) {
  if (model.preparation) {
    const auto& target = *model.preparation->target();
    if (target.kind == data::TargetKind::classes) return target.classes;
    return {};
  }
  if (model.config.data.text) return model.config.data.text->coding.class_names;
  return {};
}

}  // namespace

ModelOutputs::ModelOutputs(const engine::LoadedModel& model)
    : model_(model), class_names_(names_of_classes(model)), width_(model.model.output().numel()) {
  const nn::LossKind loss = model.config.train.loss.kind;
  const bool probabilities =
      loss == nn::LossKind::cross_entropy || loss == nn::LossKind::binary_cross_entropy;
  TensorSpec numbers{probabilities ? "probabilities" : "values", Datatype::fp32, {-1}};
  for (const int64_t extent : model.model.output().dims()) numbers.shape.push_back(extent);
  specs_.push_back(std::move(numbers));
  if (model.classes == 0 || model.classes != width_) return;
  if (class_names_.size() != size_t(width_)) class_names_.clear();
  specs_.push_back({"label", class_names_.empty() ? Datatype::int64 : Datatype::bytes, {-1}});
}

void ModelOutputs::restore(std::span<float> numbers) const {
  if (!model_.preparation) return;
  const data::Target& target = *model_.preparation->target();
  if (target.kind != data::TargetKind::values) return;
  std::vector<double> wide(numbers.begin(), numbers.end());
  target.restore(wide, width_ / target.outputs());
  std::ranges::transform(wide, numbers.begin(), [](double value) { return float(value); });
}

int64_t ModelOutputs::label(std::span<const float> sample) const {
  return std::ranges::max_element(sample) - sample.begin();
}

}  // namespace ridgeline::serve
