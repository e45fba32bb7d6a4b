// Reads and compares the facts about a run in a checkpoint that need neither a trainer nor a
// kernel.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "ridgeline/core/json.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/engine/config_difference.h"
#include "ridgeline/engine/train/checkpoint.h"
#include "ridgeline/nn/model_file.h"
#include "ridgeline/plan/kernel_aliases.h"

namespace ridgeline::engine {
namespace {

using nlohmann::json;

Config read_own_config(const nn::TensorFile& file) {
  const nn::ModelDescription description = nn::read_description(file);
  try {
    Config config = parse_config(description.config, file.origin());
    nn::check_tensors(file, nn::outline(config.layers, description.input),
                      {.strict = false, .ignore_prefix = kOptimizerPrefix});
    return config;
  } catch (const Error& error) {
    throw_error(ErrorKind::model, "{} (the config in the checkpoint's metadata)", error.what());
  }
}

}  // namespace

CheckpointInfo read_checkpoint_info(const nn::TensorFile& file) {
  const auto found = file.metadata().find(kCheckpointKey);
  if (found == file.metadata().end()) {
    throw_error(ErrorKind::model, "{}: metadata has no {}: not a checkpoint", file.origin(),
                kCheckpointKey);
  }
  CheckpointInfo info;
  info.config = read_own_config(file);
  try {
    const json kept = parse_json(found->second);
    if (kept.at("version") != kCheckpointVersion) {
      throw_error(ErrorKind::model, "{}: checkpoint version {} is not known to this build",
                  file.origin(), quote(dump_json(kept.at("version"), -1)));
    }
    info.step = kept.at("step").get<int64_t>();
    info.ranks = kept.value("ranks", 1);
    info.data_hash = std::stoull(kept.at("data_hash").get<std::string>(), nullptr, 16);
    // Earlier versions called the key "rows", and some had no names of the last evaluated batch.
    const json& kernels = kept.contains("kernels") ? kept.at("kernels") : kept.at("rows");
    kernels.at("train").get_to(info.kernels.train);
    kernels.at("tail").get_to(info.kernels.tail);
    kernels.at("evaluate").get_to(info.kernels.evaluate);
    info.kernels.evaluate_tail = kernels.value("evaluate_tail", std::vector<std::string>{});
    KernelNames& names = info.kernels;
    names.validate = kernels.value("validate", std::vector<std::string>{});
    names.validate_tail = kernels.value("validate_tail", std::vector<std::string>{});
    if (kept.contains("epoch")) {
      const json& epoch = kept.at("epoch");
      // JSON has no infinity: null is a sum that has overflowed.
      const json& loss = epoch.at("loss");
      info.epoch = {loss.is_null() ? std::numeric_limits<double>::infinity() : loss.get<double>(),
                    epoch.at("correct").get<int64_t>(), epoch.at("targets").get<int64_t>(),
                    epoch.at("counted").get<bool>()};
    }
    if (kept.contains("best")) {
      const json& best = kept.at("best");
      info.best.waited = best.at("waited").get<int64_t>();
      // Earlier versions took an infinite value for the best and wrote it as null.
      if (!best.at("value").is_null()) {
        info.best.step = best.at("step").get<int64_t>();
        info.best.value = best.at("value").get<double>();
      }
    }
    for (auto* each : {&names.train, &names.tail, &names.evaluate, &names.evaluate_tail,
                       &names.validate, &names.validate_tail}) {
      *each = current_kernel_names(std::move(*each));
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw_error(ErrorKind::model, "{}: {} in the metadata is damaged: {}", file.origin(),
                kCheckpointKey, error.what());
  }
  if (info.step < 0) {
    throw_error(ErrorKind::model, "{}: step {} is negative", file.origin(), info.step);
  }
  return info;
}

std::string changed_settings(const Config& kept, const Config& now) {
  Config before = kept;
  // These may change. Data are compared by their hash, wherever they are now.
  before.data.name = now.data.name;
  if (before.data.text && now.data.text) {
    before.data.text->train = now.data.text->train;
    before.data.text->test = now.data.text->test;
  }
  if (before.data.user && now.data.user) {
    before.data.user->train = now.data.user->train;
    before.data.user->validation = now.data.user->validation;
    before.data.user->test = now.data.user->test;
  }
  before.data.resident = now.data.resident;
  before.train.epochs = now.train.epochs;
  before.train.max_steps = now.train.max_steps;
  before.train.eval_every = now.train.eval_every;
  before.train.log_steps = now.train.log_steps;
  before.train.checkpoint_steps = now.train.checkpoint_steps;
  before.train.checkpoint_seconds = now.train.checkpoint_seconds;
  before.train.patience = now.train.patience;
  before.run.device = now.run.device;
  before.run.threads = now.run.threads;
  before.run.deterministic = now.run.deterministic;
  before.run.tune = now.run.tune;
  before.run.recompute = now.run.recompute;
  constexpr size_t kShort = 40;  // longer values are in the files
  std::string changed;
  for (const Difference& found : differences(to_toml(now), to_toml(before))) {
    if (!changed.empty()) changed += ", ";
    changed += found.key;
    if (std::max(found.left.size(), found.right.size()) > kShort) continue;
    const auto text = [](const std::string& value) { return value.empty() ? "nothing" : value; };
    changed += fmt::format(" (now {}, then {})", text(found.left), text(found.right));
  }
  return changed;
}

}  // namespace ridgeline::engine
