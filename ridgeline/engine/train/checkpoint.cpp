#include "ridgeline/engine/train/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "ridgeline/core/json.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/engine/config_difference.h"
#include "ridgeline/nn/model_file.h"
#include "ridgeline/plan/kernel_aliases.h"

namespace ridgeline::engine {
namespace {

using nlohmann::json;

constexpr const char* kKey = "ridgeline.checkpoint";
constexpr int kVersion = 1;
constexpr const char* kPrefix = "optimizer.";
constexpr const char* kBestPrefix = "optimizer.best.";

bool is_param(const nn::Model& model, const std::string& name) {
  for (const nn::Param& param : model.params()) {
    if (param.name == name) return true;
  }
  return false;
}

nn::Metadata describe_trained(Trainer& trainer, const nn::Model& model) {
  const data::SampleSet& set = trainer.set().train;
  return describe_model(model, trainer.config(), trainer.scaling(), set.classes, set.symbols,
                        trainer.set().preparation.get());
}

Config read_own_config(const nn::TensorFile& file) {
  const nn::ModelDescription description = nn::read_description(file);
  try {
    Config config = parse_config(description.config, file.origin());
    nn::check_tensors(file, nn::outline(config.layers, description.input),
                      {.strict = false, .ignore_prefix = kPrefix});
    return config;
  } catch (const Error& error) {
    throw_error(ErrorKind::model, "{} (the config in the checkpoint's metadata)", error.what());
  }
}

}  // namespace

std::vector<std::byte> checkpoint_bytes(Trainer& trainer, const Snapshot& snapshot,
                                        const BestWeights& best) {
  const nn::Model& model = trainer.model();
  nn::Metadata metadata = describe_trained(trainer, model);
  const KernelNames kernels = trainer.kernels();
  json stands{{"version", kVersion},
              {"step", trainer.step()},
              {"ranks", trainer.ranks()},
              {"data_hash", fmt::format("{:016x}", trainer.set().train.hash)},
              {"kernels",
               {{"train", kernels.train},
                {"tail", kernels.tail},
                {"evaluate", kernels.evaluate},
                {"evaluate_tail", kernels.evaluate_tail},
                {"validate", kernels.validate},
                {"validate_tail", kernels.validate_tail}}}};
  if (best.step >= 0) {
    stands["best"] = {{"step", best.step}, {"value", best.value}, {"waited", best.waited}};
  }
  metadata[kKey] = stands.dump();
  std::vector<nn::TensorEntry> tensors;
  for (const Snapshot::Item& item : snapshot.items) {
    const bool param = is_param(model, item.name);
    tensors.push_back(nn::entry(param ? item.name : kPrefix + item.name, item.value.view()));
  }
  for (const Snapshot::Item& item : best.weights.items) {
    tensors.push_back(nn::entry(kBestPrefix + item.name, item.value.view()));
  }
  return nn::to_safetensors(tensors, metadata);
}

std::vector<std::byte> model_file_bytes(Trainer& trainer) {
  const nn::Model& model = trainer.model();
  return nn::to_safetensors(nn::model_tensors(model), describe_trained(trainer, model));
}

CheckpointInfo read_checkpoint_info(const nn::TensorFile& file) {
  const auto found = file.metadata().find(kKey);
  if (found == file.metadata().end()) {
    throw_error(ErrorKind::model, "{}: metadata has no {}: not a checkpoint", file.origin(), kKey);
  }
  CheckpointInfo info;
  info.config = read_own_config(file);
  try {
    const json kept = parse_json(found->second);
    if (kept.at("version") != kVersion) {
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
    if (kept.contains("best")) {
      const json& best = kept.at("best");
      info.best.step = best.at("step").get<int64_t>();
      info.best.value = best.at("value").get<double>();
      info.best.waited = best.at("waited").get<int64_t>();
    }
    for (auto* each : {&names.train, &names.tail, &names.evaluate, &names.evaluate_tail,
                       &names.validate, &names.validate_tail}) {
      *each = current_kernel_names(std::move(*each));
    }
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw_error(ErrorKind::model, "{}: {} in the metadata is damaged: {}", file.origin(), kKey,
                error.what());
  }
  if (info.step < 0) {
    throw_error(ErrorKind::model, "{}: step {} is negative", file.origin(), info.step);
  }
  return info;
}

std::string changed_settings(const Config& kept, const Config& now) {
  Config before = kept;
  // What may change. Of the data its hash decides, wherever it lies now.
  before.data.name = now.data.name;
  if (before.data.text && now.data.text) {
    before.data.text->train = now.data.text->train;
    before.data.text->test = now.data.text->test;
  }
  if (before.data.own && now.data.own) {
    before.data.own->train = now.data.own->train;
    before.data.own->validation = now.data.own->validation;
    before.data.own->test = now.data.own->test;
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
  constexpr size_t kShort = 40;  // longer ones are in the files, for who wants to compare
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

namespace {

void read_item(const nn::TensorFile& file, const std::string& name, const Tensor& to) {
  const nn::TensorEntry* entry = file.find(name);
  if (entry == nullptr) {
    throw_error(ErrorKind::model, "{}: has no tensor {}", file.origin(), name);
  }
  if (entry->dtype != to.dtype || !(entry->shape == to.shape)) {
    throw_error(ErrorKind::model, "{}: {} is {} {} but this run needs {} {}", file.origin(), name,
                ridgeline::name(entry->dtype), to_string(entry->shape), ridgeline::name(to.dtype),
                to_string(to.shape));
  }
  std::memcpy(to.data, entry->data.data(), to.bytes());
}

}  // namespace

void restore_checkpoint(const nn::TensorFile& file, Trainer& trainer) {
  const CheckpointInfo info = read_checkpoint_info(file);
  Snapshot snapshot = trainer.snapshot();
  const nn::Model& model = trainer.model();
  for (Snapshot::Item& item : snapshot.items) {
    const std::string name = is_param(model, item.name) ? item.name : kPrefix + item.name;
    read_item(file, name, item.value.view());
  }
  trainer.restore(snapshot, info.step);
}

Snapshot read_best_weights(const nn::TensorFile& file, const Trainer& trainer) {
  Snapshot best = trainer.model_snapshot();
  const bool any = std::ranges::any_of(file.tensors(), [](const nn::TensorEntry& each) {
    return each.name.starts_with(kBestPrefix);
  });
  if (!any) return {};
  for (Snapshot::Item& item : best.items) {
    read_item(file, kBestPrefix + item.name, item.value.view());
  }
  return best;
}

}  // namespace ridgeline::engine
