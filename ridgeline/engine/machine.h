#pragma once

#include <memory>
#include <optional>

#include "ridgeline/engine/config.h"
#include "ridgeline/engine/progress.h"
#include "ridgeline/plan/cache.h"
#include "ridgeline/plan/planner.h"
#include "ridgeline/prof/ceilings.h"

namespace ridgeline::engine {

// "auto" is the first GPU this build can use, else the CPU. Throws Error(usage) for anything that
// is not a device.
Device choose_device(const std::string& text);

// Replaces "auto" by the chosen device. Reports it on stderr if that is the CPU although the
// machine has an NVIDIA driver.
void settle_device(RunConfig& run);

// Whether a device supports a precision: tf32 and fp32x3 exist only on GPUs.
bool has_precision(Device device, Precision precision);

// A device to plan for: its runtime, the table of kernels and the tuning cache.
class Machine {
 public:
  // Throws Error(device) if it does not exist, Error(usage) if it cannot compute in the run's
  // precision. Resolves "auto" as above. `ranks`, if any, must outlive it: each rank of a host
  // takes the GPU of its own number, and its share of the threads.
  explicit Machine(const RunConfig& run, Communicator* ranks = nullptr);
  static Machine reference();  // the CPU with its reference kernels alone, one kernel an op

  Runtime& runtime() { return *runtime_; }
  const KernelTable& kernels() const { return kernels_; }
  // Includes kernels that read the weights when they are prepared, for inference plans whose
  // weights are in place and never change.
  const KernelTable& inference_kernels() const { return inference_kernels_; }
  // Plans made from now on exclude some kernels.
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

  // Called after each plan: clears the notice. If measuring was cut short, later plans do not
  // measure as long again.
  void planned(const Explanation& explanation);

  // Measures the ceilings, or returns the kept ones.
  std::optional<prof::Ceilings> ceilings(bool again = false);
  std::optional<prof::Ceilings> kept_ceilings() const;  // from an earlier run, if any
  static bool keeps_ceilings(Device gpu);               // whether a file exists; opens no device

 private:
  int threads_;
  std::unique_ptr<StartNotice> notice_;
  std::unique_ptr<Runtime> runtime_;
  KernelTable kernels_, inference_kernels_;
  std::optional<TuningCache> cache_;
  PlanOptions options_;
};

}  // namespace ridgeline::engine
