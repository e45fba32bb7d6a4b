#pragma once

#include "ridgeline/core/runtime.h"
#include "ridgeline/data/image_set.h"
#include "ridgeline/data/scaling.h"
#include "ridgeline/engine/config.h"
#include "ridgeline/nn/lower.h"
#include "ridgeline/plan/plan.h"

namespace ridgeline::engine {

// Images, labels and an order of rows in a device's memory, for Gather ops to pick from.
class ResidentSet {
 public:
  ResidentSet(Runtime& runtime, const data::ImageSet& set);

  void set_order(std::span<const int32_t> order);  // as many as there are rows
  void bind(const nn::Lowered& lowered, Externals& externals) const;
  int64_t rows() const { return rows_; }

 private:
  Runtime& runtime_;
  int64_t rows_;
  DeviceBuffer images_, labels_, order_;
};

data::Scaling scaling_for(data::ScaleKind kind, const data::ImageSet& train);

// What all lowerings of a run have in common: its precision, data and loss.
nn::LowerOptions lower_options(const Config& config, const data::Scaling& scaling, int classes);

// The model must end in as many outputs as the data has classes. Throws usage.
void check_outputs(const nn::Model& model, int classes, const std::string& data_name);

}  // namespace ridgeline::engine
