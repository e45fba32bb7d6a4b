#include "ridgeline/engine/plain_inputs.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "ridgeline/engine/user_data.h"

namespace ridgeline::engine {
namespace {

// Returns one timestep of a sample: [28, 28] -> [28], [64] codes -> [1].
Shape timestep_of(const Shape& sample, bool codes) {
  if (codes) return {1};
  return sample.rank() > 1 ? sample.drop_front() : sample;
}

}  // namespace

PlainInputs::PlainInputs(const LoadedModel& loaded, std::optional<DType> given, bool timestep)
    : scaling_(loaded.scaling) {
  if (given && *given != DType::fp32 && *given != DType::uint8 && *given != DType::int32) {
    throw_error(ErrorKind::usage, "samples of {} cannot be given; use fp32, uint8 or int32",
                name(*given));
  }
  const auto& preparation = loaded.preparation;
  if (preparation && input_dtype(*preparation) == DType::fp32) {
    given_ = inputs_ = DType::fp32;
    if (given && *given != DType::fp32) {
      throw_error(ErrorKind::usage, "the model takes numbers: give its samples as fp32");
    }
    take_numbers(*preparation, timestep);
    return;
  }
  codes_ = loaded.model.layers().front()->codes_below();
  constexpr int64_t kBytes = 256;  // codes that fit into a byte
  given_ = given.value_or(codes_ > kBytes ? DType::int32 : DType::uint8);
  if (codes_ > 0 && given_ == DType::fp32) {
    throw_error(ErrorKind::usage,
                "the model takes codes below {}: give its samples as uint8 or int32", codes_);
  }
  if (codes_ == 0 && given_ == DType::int32) {
    throw_error(ErrorKind::usage, "the model takes pixels: give its samples as uint8 or fp32");
  }
  inputs_ = given_;
  shape_ = timestep ? timestep_of(loaded.model.input(), codes_ > 0) : loaded.model.input();
  elements_ = shape_.numel();
}

void PlainInputs::take_numbers(const data::Preparation& preparation, bool timestep) {
  for (const data::Feature& feature : preparation.features()) {
    const auto* number = std::get_if<data::NumberFeature>(&feature);
    if (number == nullptr) {
      throw_error(ErrorKind::usage,
                  "field {} of the model is no number: ask it by Model::predict or `ridgeline "
                  "infer`, which read words and images",
                  data::field_of(feature));
    }
    take_feature(*number, timestep && !preparation.windows());
  }
  const bool one = preparation.features().size() == 1;
  shape_ = {int64_t(numbers_.size())};
  if (one && !timestep)
    shape_ = std::get<data::NumberFeature>(preparation.features().front()).shape;
  if (preparation.windows() && !timestep) shape_ = shape_.prepend(preparation.windows()->window);
  elements_ = shape_.numel();
  plain_ = identity_ = true;
  constexpr double kAll = std::numeric_limits<double>::infinity();
  for (const Number& number : numbers_) {
    plain_ &= number.low == -kAll && number.high == kAll && !number.log && number.indicator < 0;
    identity_ &= number.shift == 0 && number.scale == 1;
    shift_.push_back(number.shift);
    scale_.push_back(number.scale);
  }
}

void PlainInputs::take_feature(const data::NumberFeature& feature, bool timestep) {
  const int64_t all = feature.elements();
  int64_t count = all;
  if (timestep) {
    count = timestep_of(feature.shape, false).numel();
    for (int64_t i = count; i < all; ++i) {
      const auto a = size_t(i), b = size_t(i % count);
      if (feature.shift[a] == feature.shift[b] && feature.scale[a] == feature.scale[b]) continue;
      throw_error(ErrorKind::usage,
                  "field {}: each timestep has a scale of its own, so that the model cannot be "
                  "asked for one timestep at a time; train it with data.windows or scale none",
                  feature.field);
    }
  }
  const bool indicator = feature.missing == data::MissingRule::indicator;
  constexpr double kAll = std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < count; ++i) {
    const auto e = size_t(i);
    Number number{-kAll, kAll, feature.log, {}, feature.shift[e], feature.scale[e], 0, int64_t{-1}};
    if (feature.clip) std::tie(number.low, number.high) = *feature.clip;
    if (!feature.fill.empty()) number.fill = feature.fill[e];
    number.at = width_ + i;
    if (indicator) number.indicator = width_ + count + i;
    numbers_.push_back(number);
  }
  width_ += count * (indicator ? 2 : 1);
}

void PlainInputs::apply(const void* samples, int64_t count, void* inputs, ThreadPool* pool) const {
  if (pool != nullptr && plain_ &&
      apply_shared(static_cast<const float*>(samples), count, static_cast<float*>(inputs), *pool)) {
    return;
  }
  const int64_t all = count * elements_;
  if (!numbers_.empty()) {
    apply_numbers(static_cast<const float*>(samples), all / int64_t(numbers_.size()),
                  static_cast<float*>(inputs));
  } else if (given_ == DType::fp32) {
    const auto* from = static_cast<const float*>(samples);
    auto* to = static_cast<float*>(inputs);
    for (int64_t i = 0; i < all; ++i) to[i] = from[i] * scaling_.scale + scaling_.shift;
  } else if (given_ == DType::int32) {
    copy_codes(static_cast<const int32_t*>(samples), all, inputs);
  } else {
    copy_codes(static_cast<const uint8_t*>(samples), all, inputs);
  }
}

template <typename T>
void PlainInputs::copy_codes(const T* codes, int64_t count, void* inputs) const {
  for (int64_t i = 0; codes_ > 0 && i < count; ++i) {
    if (codes[i] >= 0 && int64_t{codes[i]} < codes_) continue;
    throw_error(ErrorKind::data, "sample {} holds the code {}, and the model knows those below {}",
                i / elements_, codes[i], codes_);
  }
  std::memcpy(inputs, codes, size_t(count) * sizeof(T));
}

// The fast path of the usual case. Returns false if a number is not finite; the output is then
// undefined.
bool PlainInputs::apply_fast(const float* from, int64_t timesteps, float* to) const {
  constexpr uint32_t kExponent = 0x7f800000;  // all ones: infinite or NaN
  const auto all = size_t(timesteps * width_);
  uint32_t bad = 0;
  for (size_t i = 0; i < all; ++i) {
    bad |= uint32_t((std::bit_cast<uint32_t>(from[i]) & kExponent) == kExponent);
  }
  if (bad != 0) return false;
  if (identity_) {
    std::memcpy(to, from, all * sizeof(float));
    return true;
  }
  const double *shift = shift_.data(), *scale = scale_.data();
  for (int64_t t = 0; t < timesteps; ++t, from += width_, to += width_) {
    for (int64_t i = 0; i < width_; ++i) to[i] = float((double(from[i]) - shift[i]) * scale[i]);
  }
  return true;
}

// apply_fast() by threads that each take the samples which they gather later: lines that another
// core has written cost an imported perceptron at batch 256 a quarter of its call (EPYC).
bool PlainInputs::apply_shared(const float* from, int64_t count, float* to,
                               ThreadPool& pool) const {
  constexpr int64_t kLeastNumbers = 1 << 15;  // of a thread: waking another costs microseconds
  const int64_t timesteps = elements_ / int64_t(numbers_.size());
  std::atomic<bool> finite = true;
  pool.share(count, 1, kLeastNumbers / elements_ + 1, [&](Range part) {
    if (!apply_fast(from + part.begin * elements_, (part.end - part.begin) * timesteps,
                    to + part.begin * timesteps * width_)) {
      finite = false;
    }
  });
  return finite;
}

void PlainInputs::apply_numbers(const float* from, int64_t timesteps, float* to) const {
  if (plain_ && apply_fast(from, timesteps, to)) return;
  const auto each = int64_t(numbers_.size());
  for (int64_t t = 0; t < timesteps; ++t, from += each, to += width_) {
    for (int64_t i = 0; i < each; ++i) {
      const Number& number = numbers_[size_t(i)];
      double x = double(from[i]);
      const bool missing = std::isnan(x);
      if ((missing && !number.fill) || std::isinf(x)) {
        throw_error(ErrorKind::data, "number {} of sample {} is {}, which the model does not take",
                    i, t * each / elements_, missing ? "missing (NaN)" : "infinite");
      }
      if (missing) x = *number.fill;
      x = std::clamp(x, number.low, number.high);
      if (number.log) x = std::copysign(std::log1p(std::abs(x)), x);
      to[number.at] = float((x - number.shift) * number.scale);
      if (number.indicator >= 0) to[number.indicator] = missing ? 1.0f : 0.0f;
    }
  }
}

}  // namespace ridgeline::engine
