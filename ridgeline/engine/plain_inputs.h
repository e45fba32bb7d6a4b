#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ridgeline/engine/model_io.h"

namespace ridgeline::engine {

// Turns the numbers that a caller has into the inputs of a model, without allocating: bytes are
// scaled, numbers of a model of one's own data are clipped, filled in and scaled as in training.
// Models that take words or several images need data::Preparation, and are refused here.
class PlainInputs {
 public:
  // `given`: the type of the caller's numbers, fp32 or uint8; none: the model's own. `timestep`:
  // calls bring one timestep of a sequence instead of a whole sample. Throws usage when the model
  // cannot be asked in this way.
  PlainInputs(const LoadedModel& loaded, std::optional<DType> given, bool timestep);

  DType given() const { return given_; }
  const Shape& shape() const { return shape_; }  // of one sample as the caller gives it
  int64_t elements() const { return elements_; }
  DType inputs() const { return inputs_; }  // what apply() writes, and a program gathers
  // Whether apply() does nothing but copy, and refuse numbers that are not finite.
  bool as_they_are() const { return plain_ && as_they_are_; }

  // The samples [count][elements()] become inputs [count][numbers of the model's input]. Throws
  // data for a code that the model does not know, and for a missing (NaN) or infinite number where
  // none is allowed.
  void apply(const void* samples, int64_t count, void* inputs) const;

 private:
  // One number of a sample (of a timestep, where there are several): y = (f(clip(x)) - shift) *
  // scale.
  struct Number {
    double low, high;
    bool log;
    std::optional<double> fill;  // of a missing value
    double shift, scale;
    int64_t at;         // its place among the inputs
    int64_t indicator;  // the place of what says that it was missing; -1: there is none
  };
  void take_numbers(const data::Preparation& preparation, bool timestep);
  void take_feature(const data::NumberFeature& feature, bool timestep);
  void apply_numbers(const float* from, int64_t timesteps, float* to) const;
  bool apply_plainly(const float* from, int64_t timesteps, float* to) const;

  DType given_ = DType::uint8, inputs_ = DType::uint8;
  Shape shape_;
  int64_t elements_ = 0;
  int64_t codes_ = 0;  // not 0: the samples are codes below this
  data::Scaling scaling_;
  std::vector<Number> numbers_;
  int64_t width_ = 0;  // inputs that numbers_ make
  // Where nothing but shift and scale is asked of any number: those of each; or not even these.
  bool plain_ = false, as_they_are_ = false;
  std::vector<double> shift_, scale_;
};

}  // namespace ridgeline::engine
