#pragma once

#include <span>

#include "ridgeline/engine/machine.h"
#include "ridgeline/nn/lower.h"

namespace ridgeline::engine {

// A lowered and planned program, with its own small values: batch position, counters, learning
// rates, results. All large values are external and shared between runners.
class Runner {
 public:
  // `shared` has the memory of the resident set, the order, the weights and the optimizer's state.
  // `pinned` are kernel names to use again (a checkpoint's); empty: none. `fixed_weights`: the
  // weights are in place and never change, so that kernels may read them while they are prepared.
  Runner(Machine& machine, nn::Lowered lowered, const Externals& shared,
         const std::vector<std::string>& pinned = {}, bool fixed_weights = false);

  // Makes `steps` steps on the batches that begin at order[first]. `done` is the number of earlier
  // steps; `lr` has one rate per step (empty if the program has none); augmentation depends on
  // `epoch`.
  void launch(int64_t first, int64_t steps, int64_t done = 0, std::span<const double> lr = {},
              int64_t epoch = 0);

  // Zeroes the recurrent state that this runner carries from batch to batch.
  void clear_carried();
  // That state on the device, in a fixed order.
  const std::vector<Tensor>& carried() const { return carried_; }

  // Sets only the inputs of a launch, for callers that run the plan choice by choice.
  void set_inputs(int64_t first, int64_t done, std::span<const double> lr, int64_t epoch = 0);

  // The losses of the last launch, one per step. Waits for its end.
  std::span<const double> losses();
  std::span<const int32_t> corrects();

  // Copies a value of this program to the host; T is its type.
  template <typename T>
  std::vector<T> read(const Value& value) const {
    std::vector<T> host(size_t(value.shape.numel()));
    plan_->runtime().download(host.data(), plan_->peek(value.id).data, host.size() * sizeof(T));
    return host;
  }

  int64_t repeats() const { return lowered_.program.repeats; }
  const nn::Lowered& lowered() const { return lowered_; }
  Plan& plan() { return *plan_; }
  const Explanation& explanation() const { return explanation_; }
  std::vector<std::string> kernel_names() const;

 private:
  void fetch_results();

  nn::Lowered lowered_;
  Explanation explanation_;
  // Inputs of a launch, and its results: one copy each between host and device.
  DeviceBuffer control_, results_;
  Buffer host_control_, host_results_;
  std::unordered_map<ValueId, size_t> offsets_;
  std::vector<DeviceBuffer> others_;
  std::vector<Tensor> carried_;  // those of others_ that are recurrent state
  bool fetched_ = false;
  int64_t launched_ = 0;
  std::optional<Plan> plan_;
};

}  // namespace ridgeline::engine
