#pragma once

#include "ridgeline/engine/train/best_weights.h"
#include "ridgeline/engine/train/tally.h"
#include "ridgeline/engine/train/trainer.h"

namespace ridgeline::engine {

// A checkpoint is a model file with the optimizer's state as "optimizer.<name>" tensors, the best
// weights so far as "optimizer.best.<name>" if a run keeps those and, in the metadata under
// "ridgeline.checkpoint", the position of the run: step, data, chosen kernels, the best evaluation,
// the epoch's losses so far.
inline constexpr const char* kCheckpointKey = "ridgeline.checkpoint";
inline constexpr int kCheckpointVersion = 1;
inline constexpr const char* kOptimizerPrefix = "optimizer.";

struct CheckpointInfo {
  int64_t step = 0;
  int ranks = 1;  // of the run that made it; another number may continue
  uint64_t data_hash = 0;
  KernelNames kernels;
  Config config;
  BestWeights best{};  // without the weights
  Tally epoch{};       // of the epoch's steps so far
};

std::vector<std::byte> checkpoint_bytes(Trainer& trainer, const Snapshot& snapshot,
                                        const BestWeights& best = {}, const Tally& epoch = {});
std::vector<std::byte> model_file_bytes(Trainer& trainer);

// Throws Error(model) if the file is not a checkpoint, or its weights do not fit its own config.
CheckpointInfo read_checkpoint_info(const nn::TensorFile& file);

// Returns the settings that differ but must not when a run is continued, with both values if these
// are short, or "". Run length, evaluation, checkpointing, threads, tuning and the place of the
// data may change.
std::string changed_settings(const Config& kept, const Config& now);

// Restores weights, state and position. Throws Error(model) if tensors are missing or of the wrong
// shape or type.
void restore_checkpoint(const nn::TensorFile& file, Trainer& trainer);

// Returns the best weights in a checkpoint, or none. Throws like restore_checkpoint().
Snapshot read_best_weights(const nn::TensorFile& file, const Trainer& trainer);

}  // namespace ridgeline::engine
