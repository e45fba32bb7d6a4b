#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ridgeline/engine/train/trainer.h"

namespace ridgeline::engine {

// A training step with a batch other than the trainer's, or one rank's share of it without the
// ranks (its sums are copies), planned and ready to be timed. The trainer's weights do not change.
class StepShare {
 public:
  StepShare(Machine& machine, Trainer& trainer, int64_t batch, int ranks = 1);

  double seconds();  // of one step, measured
  int64_t samples() const { return samples_; }
  std::vector<std::string> kernels_used() const { return runner_->kernel_names(); }
  size_t memory() const { return runner_->plan().memory().arena; }  // of the step's own values
  // The sums over the ranks: bytes of gradients, bytes on the network, bytes of each sum.
  double bytes() const { return bytes_; }
  double network_bytes() const { return network_bytes_; }
  const std::vector<double>& messages() const { return messages_; }

 private:
  Runtime& runtime_;
  ResidentSet set_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<Runner> runner_;
  int64_t samples_ = 0;
  double bytes_ = 0, network_bytes_ = 0;
  std::vector<double> messages_;
};

}  // namespace ridgeline::engine
