#include "ridgeline/engine/resident_set.h"

namespace ridgeline::engine {

ResidentSet::ResidentSet(Runtime& runtime, const data::ImageSet& set)
    : runtime_(runtime),
      rows_(set.size()),
      images_(runtime, set.images.view().bytes()),
      labels_(runtime, set.labels.view().bytes()),
      order_(runtime, size_t(set.size()) * sizeof(int32_t)) {
  runtime.upload(images_.data(), set.images.view().data, images_.size());
  runtime.upload(labels_.data(), set.labels.view().data, labels_.size());
}

void ResidentSet::set_order(std::span<const int32_t> order) {
  runtime_.upload(order_.data(), order.data(), order.size_bytes());
}

void ResidentSet::bind(const nn::Lowered& lowered, Externals& externals) const {
  const auto add = [&](const Value& value, const DeviceBuffer& memory) {
    if (value) externals[value.id] = {memory.data(), value.dtype, value.shape, runtime_.device()};
  };
  add(lowered.images, images_);
  add(lowered.labels, labels_);
  add(lowered.order, order_);
}

data::Scaling scaling_for(Scale scale, const data::ImageSet& train) {
  const auto kind = scale == Scale::raw    ? data::ScaleKind::raw
                    : scale == Scale::unit ? data::ScaleKind::unit
                                           : data::ScaleKind::standard;
  return data::make_scaling(kind, train.images.span<const uint8_t>());
}

nn::LowerOptions lower_options(const Config& config, const data::Scaling& scaling, int classes) {
  nn::LowerOptions options;
  options.precision = config.run.precision;
  options.scale = scaling.scale;
  options.shift = scaling.shift;
  options.classes = classes;
  options.loss = config.train.loss;
  options.optimizer = config.train.optimizer;
  options.clip_norm = config.train.clip_norm;
  options.seed = config.train.seed;
  options.augment = {config.train.seed, config.data.shift, config.data.flip};
  return options;
}

void check_outputs(const nn::Model& model, int classes, const std::string& data_name) {
  if (model.output().numel() == classes) return;
  throw_error(ErrorKind::usage,
              "the last layer gives {} outputs but {} has {} classes: set its out to {}",
              model.output().numel(), data_name, classes, classes);
}

}  // namespace ridgeline::engine
