#pragma once

#include <map>
#include <memory>

#include "ridgeline/data/sample_set.h"
#include "ridgeline/engine/model_io.h"
#include "ridgeline/engine/runner.h"
#include "ridgeline/engine/weights.h"

namespace ridgeline::engine {

struct StepResult {
  double loss = 0;      // mean over the batch, before the update
  int64_t correct = 0;  // of classes
};

// Makes training steps one at a time, on the caller's batches.
class StepTrainer {
 public:
  // The initial weights are those of `loaded`, and the optimizer's state is new. The loss and the
  // optimizer are those of its config.
  StepTrainer(const LoadedModel& loaded, const RunConfig& run);

  Machine& machine() { return machine_; }
  const Config& config() const { return config_; }
  int64_t step() const { return step_; }  // steps made
  // Makes one step on a batch, whose inputs are on the host or on this trainer's device. Waits for
  // the device.
  StepResult make(const data::SampleSet& batch, double rate);
  // Copies the current weights to `model`.
  void download_to(nn::Model& model) const { weights_.download_to(model); }

 private:
  struct Prepared {
    DeviceBuffer inputs, targets, weights, order, lengths;
    std::unique_ptr<Runner> runner;
  };
  struct Key {
    DType inputs, targets;
    int64_t samples;
    bool lengths = false;  // samples are sequences of their own lengths
    bool weights = false;  // samples have weights
    auto operator<=>(const Key&) const = default;
  };
  nn::LowerOptions options_for(const Key& key) const;
  Prepared& prepare(const Key& key);

  Config config_;
  int classes_;
  nn::Model model_;
  Machine machine_;
  Weights weights_;
  std::map<Key, Prepared> prepared_;  // a plan for each batch size so far
  int64_t step_ = 0;
};

}  // namespace ridgeline::engine
