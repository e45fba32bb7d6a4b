#include "ridgeline/engine/resident_set.h"

#include <optional>

#include "ridgeline/data/character_text.h"
#include "ridgeline/data/locate.h"

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
  return options;
}

nn::LowerOptions lower_options(const Config& config, const data::Scaling& scaling,
                               const data::ImageSet& set) {
  nn::LowerOptions options = lower_options(config, scaling, set.classes);
  options.targets = set.targets();
  options.carry_state = set.streams > 0;
  return options;
}

void check_outputs(const nn::Model& model, const data::ImageSet& set,
                   const std::string& data_name) {
  const int64_t codes = model.layers().front()->codes_below(), outputs = model.output().numel();
  if (codes > 0 && codes < set.classes && !set.symbols.empty()) {
    throw_error(ErrorKind::usage,
                "the embedding knows {} symbols but {} has {}: set its vocabulary to {}", codes,
                data_name, set.classes, set.classes);
  }
  if (outputs == set.targets() * set.classes) return;
  if (set.targets() > 1) {
    throw_error(ErrorKind::usage,
                "the model gives {} but {} wants {} classes for each of {} steps: end it with a "
                "linear layer of out = {} and per_step = true",
                to_string(model.output()), data_name, set.classes, set.targets(), set.classes);
  }
  throw_error(ErrorKind::usage,
              "the last layer gives {} outputs but {} has {} classes: set its out to {}", outputs,
              data_name, set.classes, set.classes);
}

namespace {

// The file of a text, by a set's name or its own path; none for anything else.
std::optional<std::filesystem::path> text_file(const std::string& name,
                                               const std::filesystem::path& data_dir) {
  if (const data::SetInfo* set = data::find_known_set(name)) {
    if (set->text) return data::find_text(*set, data_dir);
    return std::nullopt;
  }
  std::error_code ignored;
  if (std::filesystem::is_regular_file(name, ignored)) return name;
  return std::nullopt;
}

}  // namespace

data::DataSet load_data(const Config& config, const std::filesystem::path& data_dir) {
  const auto text = text_file(config.data.name, data_dir);
  if (!text) return data::load(config.data.name, data_dir);
  return data::load_streams(*text, config.train.batch, config.data.steps, config.data.name);
}

data::ImageSet load_data_part(const Config& config, const std::string& name, data::Part part,
                              const std::filesystem::path& data_dir, int classes,
                              const std::string& symbols) {
  const auto text = text_file(name, data_dir);
  if (!text) return data::load_part(name, part, data_dir, classes);
  if (symbols.empty()) {
    throw_error(ErrorKind::usage, "{} is a text, but the model was not trained on one", name);
  }
  const data::Alphabet alphabet(symbols);
  data::DataSet set =
      data::load_streams(*text, config.train.batch, config.data.steps, name, &alphabet);
  return part == data::Part::train ? std::move(set.train) : std::move(set.test);
}

}  // namespace ridgeline::engine
