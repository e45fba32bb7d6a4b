#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/engine/model_io.h"

namespace ridgeline::engine {

// Turns a caller's numbers into the inputs of a model, without allocating: bytes are scaled;
// numbers for a model of a user's own data are clipped, filled in and scaled as in training. Models
// that take words or several images need data::Preparation, and are refused here.
class PlainInputs {
 public:
  // `given` is the type of the caller's numbers, fp32 or uint8, or int32 for codes; none: the
  // model's own. `timestep`:
  // each call brings one timestep of a sequence instead of a whole sample. Throws Error(usage) if
  // the model does not support this.
  PlainInputs(const LoadedModel& loaded, std::optional<DType> given, bool timestep);

  DType given() const { return given_; }
  const Shape& shape() const { return shape_; }  // of one sample as the caller gives it
  int64_t elements() const { return elements_; }
  int64_t codes() const { return codes_; }  // not 0: the samples are codes below this
  DType inputs() const { return inputs_; }  // the type that apply() writes and a program gathers
  // Whether apply() only copies, and refuses numbers that are not finite.
  bool is_identity() const { return plain_ && identity_; }

  // Turns samples [count][elements()] into inputs [count][numbers of the model's input]. Throws
  // Error(data) for a code that the model does not know, and for a missing (NaN) or infinite number
  // if none is allowed. Threads of the pool share the work if there is one.
  void apply(const void* samples, int64_t count, void* inputs, ThreadPool* pool = nullptr) const;

 private:
  // One number of a sample (or of a timestep): y = (f(clip(x)) - shift) *
  // scale.
  struct Number {
    double low, high;
    bool log;
    std::optional<double> fill;  // replaces a missing value
    double shift, scale;
    int64_t at;         // its position among the inputs
    int64_t indicator;  // the position of its missing-value indicator; -1: none
  };
  void take_numbers(const data::Preparation& preparation, bool timestep);
  void take_feature(const data::NumberFeature& feature, bool timestep);
  void apply_numbers(const float* from, int64_t timesteps, float* to) const;
  template <typename T>
  void copy_codes(const T* codes, int64_t count, void* inputs) const;
  bool apply_fast(const float* from, int64_t timesteps, float* to) const;
  bool apply_shared(const float* from, int64_t count, float* to, ThreadPool& pool) const;

  DType given_ = DType::uint8, inputs_ = DType::uint8;
  Shape shape_;
  int64_t elements_ = 0;
  int64_t codes_ = 0;
  data::Scaling scaling_;
  std::vector<Number> numbers_;
  int64_t width_ = 0;  // number of inputs from numbers_
  // plain_: all numbers are only shifted and scaled, by these; identity_: not even that.
  bool plain_ = false, identity_ = false;
  std::vector<double> shift_, scale_;
};

}  // namespace ridgeline::engine
