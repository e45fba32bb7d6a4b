#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ridgeline/engine/model_io.h"
#include "ridgeline/serve/datatype.h"

namespace ridgeline::serve {

// A model's outputs: its numbers, in the units of its data, and the class of each sample if it has
// classes.
class ModelOutputs {
 public:
  explicit ModelOutputs(const engine::LoadedModel& model);  // which must outlive it

  static constexpr size_t kNumbers = 0, kLabel = 1;  // indices in declared()
  std::span<const TensorSpec> declared() const { return specs_; }
  int64_t width() const { return width_; }  // numbers per sample

  // Converts the net's outputs for some samples to the units of the data.
  void restore(std::span<float> numbers) const;
  int64_t label(std::span<const float> sample) const;  // the index of the largest
  // The name of class `label`; empty if classes have no names, and labels are INT64.
  const std::string& class_name(int64_t label) const { return class_names_[size_t(label)]; }

 private:
  const engine::LoadedModel& model_;
  std::vector<TensorSpec> specs_;
  std::vector<std::string> class_names_;
  int64_t width_;
};

}  // namespace ridgeline::serve
