#pragma once

#include "ridgeline/engine/train/best_weights.h"
#include "ridgeline/engine/train/tally.h"
#include "ridgeline/engine/train/trainer.h"

namespace ridgeline::engine {

// A checkpoint is a model file with the optimizer's state as "optimizer.<name>" tensors, the best
// weights so far as "optimizer.best.<name>" where a run keeps those and, in the metadata under
// "ridgeline.checkpoint", where the run stands: step, data, chosen kernels, the best evaluation,
// the epoch's losses so far.
inline constexpr const char* kCheckpointKey = "ridgeline.checkpoint";
inline constexpr int kCheckpointVersion = 1;
inline constexpr const char* kOptimizerPrefix = "optimizer.";

struct CheckpointInfo {
  int64_t step = 0;
  int ranks = 1;  // that made it; a run may go on with another number
  uint64_t data_hash = 0;
  KernelNames kernels;
  Config config;
  BestWeights best{};  // without the weights
  Tally epoch{};       // of the epoch's steps up to here
};

std::vector<std::byte> checkpoint_bytes(Trainer& trainer, const Snapshot& snapshot,
                                        const BestWeights& best = {}, const Tally& epoch = {});
std::vector<std::byte> model_file_bytes(Trainer& trainer);

// Throws model when the file is no checkpoint, or its weights are not those of its own config.
CheckpointInfo read_checkpoint_info(const nn::TensorFile& file);

// The settings that differ and must not when a run is continued, with both values where these are
// short, or "". Run length, evaluation, checkpointing, threads, tuning and the place of the data
// may change.
std::string changed_settings(const Config& kept, const Config& now);

// Weights, state and position. Throws model when tensors are missing or of the wrong shape or type.
void restore_checkpoint(const nn::TensorFile& file, Trainer& trainer);

// The best weights that a checkpoint has, or none. Throws as restore_checkpoint().
Snapshot read_best_weights(const nn::TensorFile& file, const Trainer& trainer);

}  // namespace ridgeline::engine
