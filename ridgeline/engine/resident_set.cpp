#include "ridgeline/engine/resident_set.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "ridgeline/core/launch_group.h"
#include "ridgeline/core/order_maker.h"
#include "ridgeline/core/text.h"
#include "ridgeline/data/inputs_in_place.h"
#include "ridgeline/engine/prepared_inputs.h"
#include "ridgeline/nn/loss_ops.h"
#include "ridgeline/registry.h"

namespace ridgeline::engine {

ResidentSet::ResidentSet(Runtime& runtime, const data::SampleSet& set, bool stays)
    : runtime_(runtime),
      samples_(set.size()),
      order_(runtime, size_t(set.size()) * sizeof(int32_t)),
      inputs_(set.inputs.view().data),
      targets_(set.targets.view().data) {
  if (set.has_lengths()) {
    lengths_ = DeviceBuffer(runtime, set.lengths.view().bytes());
    runtime.upload(lengths_.data(), set.lengths.view().data, lengths_.size());
  }
  if (set.has_weights()) {
    weights_ = DeviceBuffer(runtime, set.weights.view().bytes());
    runtime.upload(weights_.data(), set.weights.view().data, weights_.size());
  }
  const Tensor* lying = stays ? data::inputs_on(set, runtime.device()) : nullptr;
  if (lying != nullptr) inputs_ = lying->data;
  // Inputs from a source have no memory yet.
  if (stays && runtime.device().is_host() && (lying != nullptr || !set.source)) return;
  if (LaunchGroup* group = LaunchGroup::current();
      stays && !set.source && lying == nullptr && group != nullptr) {
    inputs_ = group->resident(inputs_, set.input_bytes() * size_t(set.size()));
    targets_ = group->resident(targets_, set.targets.view().bytes());
    return;
  }
  if (lying == nullptr) {
    input_copy_ = DeviceBuffer(runtime, set.input_bytes() * size_t(set.size()));
    inputs_ = input_copy_.data();
  }
  target_copy_ = DeviceBuffer(runtime, set.targets.view().bytes());
  targets_ = target_copy_.data();
  replace(set);
}

void ResidentSet::replace(const data::SampleSet& set) {
  if (input_copy_.size() == 0) {
    // The inputs stay in place.
  } else if (set.source) {
    upload_source(set);
  } else {
    runtime_.upload(inputs_, set.inputs.view().data, input_copy_.size());
  }
  runtime_.upload(targets_, set.targets.view().data, target_copy_.size());
}

// Makes the inputs block by block.
void ResidentSet::upload_source(const data::SampleSet& set) {
  const size_t each = set.input_bytes();
  const auto most = int64_t(std::max<size_t>(1, (size_t{16} << 20) / each));
  std::vector<int32_t> samples;
  std::vector<std::byte> block;
  for (int64_t at = 0; at < set.size(); at += most) {
    samples.resize(size_t(std::min(most, set.size() - at)));
    std::iota(samples.begin(), samples.end(), int32_t(at));
    block.resize(samples.size() * each);
    set.source->gather(samples, block);
    runtime_.upload(input_copy_.data() + size_t(at) * each, block.data(), block.size());
  }
}

void ResidentSet::set_order(std::span<const int32_t> order) {
  runtime_.upload(order_.data(), order.data(), order.size_bytes());
}

std::span<int32_t> ResidentSet::order_block() {
  if (!uploader_) uploader_ = runtime_.make_uploader(order_.size());
  return {reinterpret_cast<int32_t*>(uploader_->block().data()), size_t(samples_)};
}

bool ResidentSet::make_order(const Feistel& network) {
  if (!uploader_) uploader_ = runtime_.make_uploader(order_.size());
  auto* const maker = dynamic_cast<OrderMaker*>(uploader_.get());
  if (maker != nullptr) maker->make_order(network, reinterpret_cast<int32_t*>(order_.data()));
  return maker != nullptr;
}

void ResidentSet::place_order() { uploader_->place(order_.data()); }

void ResidentSet::bind(const nn::Lowered& lowered, Externals& externals) const {
  const auto add = [&](const Value& value, void* memory) {
    if (value) externals[value.id] = {memory, value.dtype, value.shape, runtime_.device()};
  };
  add(lowered.inputs, inputs_);
  add(lowered.targets, targets_);
  add(lowered.order, order_.data());
  add(lowered.lengths, lengths_.data());
  add(lowered.sample_weights, weights_.data());
}

data::Scaling scaling_for(data::ScaleKind kind, const data::SampleSet& train) {
  if (train.input_dtype() != DType::uint8) return {};     // already prepared
  if (train.source) return data::make_scaling(kind, {});  // never standard
  return data::make_scaling(kind, train.inputs.span<const uint8_t>());
}

nn::LowerOptions lower_options(const Config& config, const data::Scaling& scaling, int classes) {
  nn::LowerOptions options;
  options.precision = config.run.precision;
  options.accumulate = config.run.accumulate;
  options.scale = scaling.scale;
  options.shift = scaling.shift;
  options.classes = classes;
  options.loss = config.train.loss;
  options.optimizer = config.train.optimizer;
  options.clip_norm = config.train.clip_norm;
  options.weights = config.run.weights;
  options.loss_scale = config.run.loss_scale;
  options.recompute = config.run.recompute;
  options.seed = config.train.seed;
  options.augment = {config.train.seed, config.data.shift, config.data.flip};
  return options;
}

nn::LowerOptions lower_options(const Config& config, const data::Scaling& scaling,
                               const data::SampleSet& set) {
  nn::LowerOptions options = lower_options(config, scaling, set.classes);
  options.set_inputs = set.input_dtype();
  options.set_targets = set.targets.view().dtype;
  options.targets = set.targets_per_sample();
  options.carry_state = set.streams > 0;
  options.lengths = set.has_lengths();
  options.sample_weights = set.has_weights();
  if (options.loss.balanced && set.classes > 0) {
    std::vector<int64_t> samples(size_t(set.classes));
    for (const int32_t label : set.targets.span<const int32_t>()) ++samples[size_t(label)];
    options.loss.weights = nn::balanced_weights(samples);
  }
  return options;
}

void check_codes(const nn::Model& model, const data::SampleSet& set, const std::string& data_name) {
  const int64_t codes = model.layers().front()->codes_below();
  const bool encoded_here = set.codes > 0 || !set.symbols.empty();
  if (codes == 0 || encoded_here || set.input_dtype() != DType::uint8) return;
  check_codes(set.inputs.span<const uint8_t>(), codes, set.features(), 0, data_name);
}

void check_outputs(const nn::Model& model, const data::SampleSet& set, const std::string& data_name,
                   const nn::Loss& loss) {
  const int64_t codes = model.layers().front()->codes_below(), outputs = model.output().numel();
  if (codes > 0 && codes < set.classes && !set.symbols.empty()) {
    throw_error(ErrorKind::usage,
                "the embedding knows {} symbols but {} has {}: set its vocabulary to {}", codes,
                data_name, set.classes, set.classes);
  }
  if (set.codes > 0 && codes < set.codes) {
    throw_error(
        ErrorKind::usage,
        "the samples of {} are codes of {} symbols: begin the model with a onehot_conv1d of "
        "symbols = {} (or an embedding of vocabulary = {})",
        data_name, set.codes - 1, set.codes - 1, set.codes);
  }
  check_codes(model, set, data_name);
  if (!model.graph().heads().empty()) {
    const int64_t columns = nn::head_columns(model);
    if (!set.has_values() || set.outputs() == columns) return;  // lower() refuses labels
    throw_error(ErrorKind::usage,
                "the heads compare with {} but {} has {} a sample; a class counts as one for each "
                "class: set the out of the heads' layers",
                counted(columns, "number"), data_name, set.outputs());
  }
  // Each target value has one output per quantile.
  const int64_t each = set.has_values() ? int64_t(std::max<size_t>(1, loss.quantiles.size())) : 1;
  const int64_t wanted = set.targets_per_sample() * set.outputs() * each;
  if (outputs == wanted) return;
  if (each > 1) {
    throw_error(ErrorKind::usage,
                "the last layer gives {} but {} has {} a sample, each with {}: set its out to {}",
                counted(outputs, "output"), data_name, counted(set.outputs(), "target"),
                counted(each, "quantile"), wanted);
  }
  if (set.has_values()) {
    throw_error(
        ErrorKind::usage, "the last layer gives {} but {} has {} a sample: set its out to {}",
        counted(outputs, "output"), data_name, counted(set.outputs(), "target"), set.outputs());
  }
  if (set.targets_per_sample() > 1) {
    throw_error(ErrorKind::usage,
                "the model gives {} but {} wants {} classes for each of {} steps: end it with a "
                "linear layer of out = {} and per_step = true",
                to_string(model.output()), data_name, set.classes, set.targets_per_sample(),
                set.classes);
  }
  // If a set does not state its number of classes, they are counted from its labels, one of which
  // may be wrong.
  std::string where;
  const auto labels = set.targets.span<int32_t>();
  const auto high = std::ranges::find_if(labels, [&](int32_t label) { return label >= outputs; });
  if (high != labels.end()) {
    where = fmt::format(" (sample {} is of class {})", high - labels.begin(), *high);
  }
  throw_error(ErrorKind::usage, "the last layer gives {} but {} has {}{}: set its out to {}",
              counted(outputs, "output"), data_name, counted(set.classes, "class", "classes"),
              where, set.classes);
}

}  // namespace ridgeline::engine
