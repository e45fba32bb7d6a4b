#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ridgeline/engine/train/train.h"

namespace ridgeline::engine {

class TrainRun;

// A run made in parts, between which its owner decides whether it goes on. To construct it, run it
// to its last epoch and finish it is what train() does, bit for bit. Throws as train().
class TrainSession {
 public:
  TrainSession(const Config& config, const TrainOptions& options);
  ~TrainSession();

  // Trains until this many epochs are made, or until the run ends: by its length, by
  // train.patience or by TrainOptions::stop.
  void run_to_epoch(int64_t epochs);
  bool has_ended() const;
  int stopped_by() const;  // what TrainOptions::stop said; 0: nothing
  int64_t step() const;
  int64_t epoch() const;  // whole ones that were made
  // Larger for the better one of two runs: train.monitor on the validation set, or else minus the
  // last epoch's mean loss. NaN: there is none.
  double score();
  KernelNames kernels() const;
  const TrainReport& report() const;  // complete only after finish()
  void save();                        // a checkpoint, where there is a folder
  // Ends the run where it stands, evaluates and writes what train() would.
  TrainReport finish();
  std::vector<std::byte> model_bytes();  // of model.safetensors, after finish()

 private:
  std::unique_ptr<TrainRun> run_;
};

}  // namespace ridgeline::engine
