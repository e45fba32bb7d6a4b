#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ridgeline/engine/train/train.h"

namespace ridgeline::engine {

class TrainRun;

// A run made in parts, between which the caller decides whether it continues. Constructing it,
// running it to its last epoch and finishing it equals train(), bit for bit. Throws like train().
class TrainSession {
 public:
  TrainSession(const Config& config, const TrainOptions& options);
  ~TrainSession();

  // Trains until this many epochs are done, or until the run ends: by its length, by train.patience
  // or by TrainOptions::stop.
  void run_to_epoch(int64_t epochs);
  bool has_ended() const;
  int stopped_by() const;  // the result of TrainOptions::stop; 0: not stopped
  int64_t step() const;
  int64_t epoch() const;  // completed epochs
  // Larger for the better of two runs: train.monitor on the validation set, or else minus the last
  // epoch's mean loss. NaN: no score.
  double score();
  KernelNames kernels() const;
  const TrainReport& report() const;  // complete only after finish()
  void save();                        // writes a checkpoint, if there is a folder
  // Ends the run here, evaluates it and writes what train() would.
  TrainReport finish();
  std::vector<std::byte> model_bytes();  // of model.safetensors, after finish()

 private:
  std::unique_ptr<TrainRun> run_;
};

}  // namespace ridgeline::engine
