#pragma once

#include <memory>

#include "ridgeline/core/feistel.h"
#include "ridgeline/core/runtime.h"
#include "ridgeline/core/uploader.h"
#include "ridgeline/data/sample_set.h"
#include "ridgeline/data/scaling.h"
#include "ridgeline/engine/config.h"
#include "ridgeline/nn/lower.h"
#include "ridgeline/plan/plan.h"

namespace ridgeline::engine {

// Inputs, targets and an order of samples in device memory, from which Gather ops read.
class ResidentSet {
 public:
  // `stays`: the set outlives this and is never replaced, so that a CPU reads it in place.
  ResidentSet(Runtime& runtime, const data::SampleSet& set, bool stays = false);

  void replace(const data::SampleSet& set);        // by another of the same shapes
  void set_order(std::span<const int32_t> order);  // as many as there are samples
  // Sets the order asynchronously: fill order_block(); send_order() starts to copy it while the
  // device works; place_order() makes the block that was sent last valid for all work requested
  // afterwards.
  std::span<int32_t> order_block();
  void send_order() { uploader_->send(); }
  void place_order();
  // Makes the device compute the order by itself; returns false if it cannot.
  bool make_order(const Feistel& network);
  void bind(const nn::Lowered& lowered, Externals& externals) const;
  int64_t samples() const { return samples_; }

 private:
  void upload_source(const data::SampleSet& set);

  Runtime& runtime_;
  int64_t samples_;
  DeviceBuffer input_copy_, target_copy_, lengths_, weights_, order_;
  void *inputs_, *targets_;             // those copies, or the set's own memory
  std::unique_ptr<Uploader> uploader_;  // created on first use
};

// Returns the scaling of bytes to floats; floats are not scaled.
data::Scaling scaling_for(data::ScaleKind kind, const data::SampleSet& train);

// Returns the options that all programs of a run share: its precision, data and loss.
nn::LowerOptions lower_options(const Config& config, const data::Scaling& scaling, int classes);
// Adds the options of the set: its types, classes, targets per sample, and whether batches continue
// one another.
nn::LowerOptions lower_options(const Config& config, const data::Scaling& scaling,
                               const data::SampleSet& set);

// Checks the codes of a whole set of samples, if the model's samples are codes.
void check_codes(const nn::Model& model, const data::SampleSet& set, const std::string& data_name);

// Checks that the model has as many outputs as the data has classes, or values per sample, and
// knows all symbols. Throws Error(usage).
void check_outputs(const nn::Model& model, const data::SampleSet& set, const std::string& data_name,
                   const nn::Loss& loss);

}  // namespace ridgeline::engine
