#include "ridgeline/data/prepare/training_blocks.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "ridgeline/core/text_format.h"
#include "ridgeline/data/prepare/refusals.h"

namespace ridgeline::data {
namespace {

constexpr int64_t kBlock = 4096;

// Some samples of a field, ascending. Those that lie close are read together.
void read_samples(const Field& field, std::span<const int64_t> samples, std::vector<double>& out) {
  const auto elements = size_t(field.shape.numel());
  out.resize(samples.size() * elements);
  std::vector<double> window;
  for (size_t at = 0; at < samples.size();) {
    // At least every fourth sample of a window is wanted.
    size_t end = at + 1;
    while (end < samples.size() && samples[end] - samples[end - 1] <= 4) ++end;
    const int64_t begin = samples[at], last = samples[end - 1];
    window.resize(size_t(last + 1 - begin) * elements);
    read_doubles(field, begin, last + 1, window);
    for (size_t i = at; i < end; ++i) {
      const auto from = window.begin() + ptrdiff_t(size_t(samples[i] - begin) * elements);
      std::copy_n(from, elements, out.begin() + ptrdiff_t(i * elements));
    }
    at = end;
  }
}

}  // namespace

void training_blocks(const Field& field, std::span<const int64_t> train, const BlockFunction& f) {
  std::vector<double> block;
  std::vector<int64_t> all;
  const int64_t count = train.empty() ? field.samples : int64_t(train.size());
  for (int64_t at = 0; at < count; at += kBlock) {
    const auto size = size_t(std::min(kBlock, count - at));
    std::span<const int64_t> samples = train;
    if (train.empty()) {
      all.resize(size);
      std::iota(all.begin(), all.end(), at);
      samples = all;
    } else {
      samples = train.subspan(size_t(at), size);
    }
    read_samples(field, samples, block);
    f(samples, block);
  }
}

void fit_scale(const Field& field, std::span<const int64_t> train, NumberScale scale,
               const std::function<double(double)>& transform, std::span<double> shift,
               std::span<double> factor) {
  std::ranges::fill(shift, 0.0);
  std::ranges::fill(factor, 1.0);
  Moments moments(shift.size());
  std::vector<double> copy;
  training_blocks(
      field, train, [&](std::span<const int64_t> samples, std::span<const double> values) {
        const auto infinite = std::ranges::find_if(values, [](double x) { return std::isinf(x); });
        if (infinite != values.end()) {
          refuse_infinite(field, samples[size_t(infinite - values.begin()) / shift.size()]);
        }
        if (scale == NumberScale::none) return;
        copy.assign(values.begin(), values.end());
        if (transform) std::ranges::transform(copy, copy.begin(), transform);
        moments.add(copy);
      });
  if (scale == NumberScale::none) return;
  for (size_t e = 0; e < shift.size(); ++e) {
    if (moments.count(e) == 0) {
      throw_error(ErrorKind::data,
                  "{}: field {}: has no value in the training samples; leave it out", field.origin,
                  quote(field.name));
    }
    const bool standard = scale == NumberScale::standardise;
    const double width = standard ? moments.deviation(e) : moments.most(e) - moments.least(e);
    if (!std::isfinite(width)) {
      throw_error(ErrorKind::data,
                  "{}: field {}: its values lie too far apart to be scaled; clip it", field.origin,
                  quote(field.name));
    }
    shift[e] = standard ? moments.mean(e) : moments.least(e);
    // The deviation of a constant is rounding alone.
    const bool constant = moments.least(e) == moments.most(e) || !std::isfinite(1.0 / width);
    if (constant) shift[e] = moments.least(e);
    factor[e] = constant ? 1.0 : 1.0 / width;
  }
}

}  // namespace ridgeline::data
