#include "ridgeline/engine/train/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "ridgeline/nn/model_file.h"

namespace ridgeline::engine {
namespace {

using nlohmann::json;

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

}  // namespace

std::vector<std::byte> checkpoint_bytes(Trainer& trainer, const Snapshot& snapshot,
                                        const BestWeights& best, const Tally& epoch) {
  const nn::Model& model = trainer.model();
  nn::Metadata metadata = describe_trained(trainer, model);
  const KernelNames kernels = trainer.kernels();
  json stands{{"version", kCheckpointVersion},
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
  if (best.step >= 0 || best.waited > 0) {
    stands["best"] = {{"step", best.step}, {"value", best.value}, {"waited", best.waited}};
  }
  if (epoch.targets > 0) {
    stands["epoch"] = {{"loss", epoch.loss},
                       {"correct", epoch.correct},
                       {"targets", epoch.targets},
                       {"counted", epoch.counted}};
  }
  metadata[kCheckpointKey] = stands.dump();
  std::vector<nn::TensorEntry> tensors;
  for (const Snapshot::Item& item : snapshot.items) {
    const bool param = is_param(model, item.name);
    tensors.push_back(
        nn::entry(param ? item.name : kOptimizerPrefix + item.name, item.value.view()));
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
    const std::string name = is_param(model, item.name) ? item.name : kOptimizerPrefix + item.name;
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
