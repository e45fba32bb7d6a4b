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

// Inputs, targets and an order of samples in a device's memory, for Gather ops to pick from.
class ResidentSet {
 public:
  // `stays`: the set outlives this and is never replaced, so that a CPU reads it where it lies.
  ResidentSet(Runtime& runtime, const data::SampleSet& set, bool stays = false);

  void replace(const data::SampleSet& set);        // by another of the same shapes
  void set_order(std::span<const int32_t> order);  // as many as there are samples
  // The same in steps: fill order_block(), which send_order() begins to copy while the device
  // works; place_order() puts what was sent last in place for all work asked for from then on.
  std::span<int32_t> order_block();
  void send_order() { uploader_->send(); }
  void place_order();
  // Has the device make the order by itself; false: it cannot.
  bool make_order(const Feistel& network);
  void bind(const nn::Lowered& lowered, Externals& externals) const;
  int64_t samples() const { return samples_; }

 private:
  void upload_source(const data::SampleSet& set);

  Runtime& runtime_;
  int64_t samples_;
  DeviceBuffer input_copy_, target_copy_, lengths_, order_;
  void *inputs_, *targets_;             // those copies, or the set's own memory
  std::unique_ptr<Uploader> uploader_;  // made when first wanted
};

// How bytes become floats; floats stay as they are.
data::Scaling scaling_for(data::ScaleKind kind, const data::SampleSet& train);

// What all lowerings of a run have in common: its precision, data and loss.
nn::LowerOptions lower_options(const Config& config, const data::Scaling& scaling, int classes);
// And what the set adds: its types, classes, targets a sample, whether batches continue one
// another.
nn::LowerOptions lower_options(const Config& config, const data::Scaling& scaling,
                               const data::SampleSet& set);

// Samples of a model whose first layer takes codes must hold no others than it knows: a kernel
// looks them up as they are. Throws data, with the sample counted from `first_sample` and the name.
void check_codes(std::span<const uint8_t> samples, int64_t codes, int64_t features,
                 int64_t first_sample, const std::string& name);
void check_codes(const nn::Model& model, const data::SampleSet& set, const std::string& data_name);

// The model must end in as many outputs as the data has classes, or values a sample, and know all
// its symbols. Throws usage.
void check_outputs(const nn::Model& model, const data::SampleSet& set, const std::string& data_name,
                   const nn::Loss& loss);

}  // namespace ridgeline::engine
