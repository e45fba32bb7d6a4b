#include <fmt/format.h>

#include "ridgeline/engine/load_data.h"
#include "ridgeline/engine/population/population.h"
#include "ridgeline/engine/resident_set.h"
#include "ridgeline/engine/train/fine_tune.h"
#include "ridgeline/engine/user_data.h"

namespace ridgeline::engine {
namespace {

void add_values(const Values& values, std::string& text) {
  for (const Value& value : values) {
    text += fmt::format(" {}{}", name(value.dtype), to_string(value.shape));
  }
}

}  // namespace

std::string shape_key(const Config& given, const data::DataSet& set) {
  const Config config = settled(given, set);
  Config settings;  // the run's alone
  settings.run = config.run;
  std::string text = data_key(config) + "\n" + to_toml(settings);
  for (const std::string& pattern : config.run.kernels) text += pattern + "\n";
  const nn::Model model = config.build_model(set.train.sample_shape());
  nn::LowerOptions options = lower_options(config, data::Scaling{}, set.train);
  options.mode = nn::Mode::train;
  options.batch = std::min(config.train.batch, set.train.size());
  if (set.train.streams > 0) options.batch = set.train.streams;
  options.set_samples = options.order_samples = set.train.size();
  options.frozen = frozen_layers(config.train.freeze, model);
  const nn::Lowered lowered = nn::lower(model, options);
  text += config.train.drop_last ? "whole batches\n" : "";
  for (const Op& op : lowered.program.ops) {
    text += name(op);
    add_values(reads(op), text);
    text += " ->";
    add_values(writes(op), text);
    text += "\n";
  }
  return text;
}

}  // namespace ridgeline::engine
