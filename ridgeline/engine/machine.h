#pragma once

#include <memory>
#include <optional>

#include "ridgeline/engine/config.h"
#include "ridgeline/engine/progress.h"
#include "ridgeline/plan/cache.h"
#include "ridgeline/plan/planner.h"
#include "ridgeline/prof/ceilings.h"

namespace ridgeline::engine {

// "auto" is the first GPU this build can use, else the CPU. Throws usage for what is no device.
Device choose_device(const std::string& text);

// Puts the chosen device in the place of "auto". Says so on stderr when that is the CPU although
// the machine has an NVIDIA driver.
void settle_device(RunConfig& run);

// What a device can compute in: tf32 and fp32x3 are ways of a GPU to multiply.
bool has_precision(Device device, Precision precision);

// A device ready to plan for: its runtime, the table of kernels and the tuning cache.
class Machine {
 public:
  // Throws device when it is not there, usage when it cannot compute in the run's precision.
  // Settles the device as above. `ranks`, if any, must outlive it: each rank of a host takes the
  // GPU of its own number, and its share of the threads.
  explicit Machine(const RunConfig& run, Communicator* ranks = nullptr);
  static Machine reference();  // the CPU with its reference kernels alone, one kernel an op

  Runtime& runtime() { return *runtime_; }
  const KernelTable& kernels() const { return kernels_; }
  // Those and the ones that read weights when they are prepared, for plans of inference whose
  // weights are in place and never change.
  const KernelTable& inference_kernels() const { return inference_kernels_; }
  // Plans made from now on do without some kernels.
  void except(const std::function<bool(const Kernel&)>& unwanted) {
    std::erase_if(kernels_, unwanted);
    std::erase_if(inference_kernels_, unwanted);
  }
  TuningCache* cache() { return cache_ ? &*cache_ : nullptr; }
  PlanOptions plan_options() const { return options_; }
  // Plans made from now on are for this many steps (PlanOptions::expected_runs).
  void expect_steps(int64_t steps) { options_.expected_runs = steps; }
  int threads() const { return threads_; }
  Device device() const { return runtime_->device(); }
  Communicator* ranks() const { return runtime_->ranks(); }  // null: alone

  // After each plan: what took long is done. Where measuring was cut short, the plans that follow
  // do not try for as long again.
  void planned(const Explanation& explanation);

  // Measured now or kept from before.
  std::optional<prof::Ceilings> ceilings(bool again = false);
  std::optional<prof::Ceilings> kept_ceilings() const;  // from before, if any
  static bool keeps_ceilings(Device gpu);               // a file is there; opens no device

 private:
  int threads_;
  std::unique_ptr<StartNotice> notice_;
  std::unique_ptr<Runtime> runtime_;
  KernelTable kernels_, inference_kernels_;
  std::optional<TuningCache> cache_;
  PlanOptions options_;
};

}  // namespace ridgeline::engine
