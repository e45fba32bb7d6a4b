#include "ridgeline/data/prepare/training_blocks.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <numeric>
#include <vector>

#include "ridgeline/core/text_format.h"
#include "ridgeline/core/thread_pool.h"
#include "ridgeline/data/prepare/refusals.h"

namespace ridgeline::data {
namespace {

// Returns the samples to read at a time: half of a core's cache in doubles.
int64_t block_samples(const Field& field) {
  constexpr int64_t kMostNumbers = int64_t{1} << 16;
  return std::clamp<int64_t>(kMostNumbers / std::max<int64_t>(1, field.shape.numel()), 16, 4096);
}

// Reads blocks of the training samples, one at a time.
class BlockReader {
 public:
  BlockReader(const Field& field, std::span<const int64_t> train)
      : field_(field), train_(train), most_(block_samples(field)) {}

  int64_t blocks() const { return (count() + most_ - 1) / most_; }
  std::span<const int64_t> samples() const { return samples_; }
  std::span<double> values() { return values_; }

  void read(int64_t block) {
    const int64_t at = block * most_;
    const auto size = size_t(std::min(most_, count() - at));
    if (train_.empty()) {
      all_.resize(size);
      std::iota(all_.begin(), all_.end(), at);
      samples_ = all_;
    } else {
      samples_ = train_.subspan(size_t(at), size);
    }
    values_.resize(size * size_t(field_.shape.numel()));
    read_doubles(field_, samples_, values_);
  }

 private:
  int64_t count() const { return train_.empty() ? field_.samples : int64_t(train_.size()); }

  const Field& field_;
  std::span<const int64_t> train_;
  int64_t most_;  // samples of a block
  std::span<const int64_t> samples_;
  std::vector<double> values_;
  std::vector<int64_t> all_;
};

// Throws for an invalid value; `values` are those of a block.
void check_values(const Field& field, BlockReader& block, bool refuse_nan) {
  const auto elements = size_t(field.shape.numel());
  const std::span<const double> values = block.values();
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t sample = block.samples()[i / elements];
    if (refuse_nan && std::isnan(values[i])) refuse_missing(field, sample);
    if (std::isinf(values[i])) refuse_infinite(field, sample);
  }
}

// Invalid values show in the moments of a block, so values need not be checked one by one.
bool suspicious(const Moments::Part& part, size_t samples, bool refuse_nan) {
  for (size_t e = 0; e < part.counts.size(); ++e) {
    if (refuse_nan && part.counts[e] != double(samples)) return true;
    if (part.counts[e] > 0 && !(std::isfinite(part.least[e]) && std::isfinite(part.most[e]))) {
      return true;
    }
  }
  return false;
}

void sum_field_block(const Field& field, BlockReader& block, int64_t number, const Moments& moments,
                     bool refuse_nan, const Transform& transform, Moments::Part& part) {
  block.read(number);
  if (transform) {
    check_values(field, block, refuse_nan);
    for (double& value : block.values()) value = std::isnan(value) ? value : transform(value);
  }
  moments.sum(block.values(), part);
  if (!transform && suspicious(part, block.samples().size(), refuse_nan)) {
    check_values(field, block, refuse_nan);
  }
}

// Processes the blocks from `first` on in groups: threads sum blocks, and one merges them in order.
void add_in_parallel(const Field& field, std::span<const int64_t> train, int64_t first,
                     bool refuse_nan, const Transform& transform, Moments& moments) {
  ThreadPool pool(resolve_threads(0));
  const int threads = pool.size();
  constexpr int64_t kEach = 32;  // blocks per thread and group
  std::vector<BlockReader> readers(size_t(threads), BlockReader(field, train));
  std::vector<Moments::Part> parts(size_t(kEach * threads));
  const int64_t blocks = readers.front().blocks();
  for (int64_t at = first; at < blocks; at += int64_t(parts.size())) {
    const int64_t count = std::min(int64_t(parts.size()), blocks - at);
    std::vector<std::exception_ptr> errors(static_cast<size_t>(count));
    pool.run([&](int thread) {
      for (int64_t i = thread; i < count; i += threads) {
        try {
          sum_field_block(field, readers[size_t(thread)], at + i, moments, refuse_nan, transform,
                          parts[size_t(i)]);
        } catch (...) {
          errors[size_t(i)] = std::current_exception();
        }
      }
    });
    for (int64_t i = 0; i < count; ++i) {
      if (errors[size_t(i)]) std::rethrow_exception(errors[size_t(i)]);
      moments.join(parts[size_t(i)]);
    }
  }
}

}  // namespace

void training_blocks(const Field& field, std::span<const int64_t> train, const BlockFunction& f) {
  BlockReader reader(field, train);
  for (int64_t block = 0; block < reader.blocks(); ++block) {
    reader.read(block);
    f(reader.samples(), reader.values());
  }
}

Moments training_moments(const Field& field, std::span<const int64_t> train, bool refuse_nan,
                         const Transform& transform) {
  constexpr int64_t kManyValues = int64_t{1} << 21;  // from here on threads are worth starting
  const auto elements = size_t(field.shape.numel());
  Moments moments(elements);
  BlockReader reader(field, train);
  const int64_t blocks = reader.blocks();
  const bool many = blocks * block_samples(field) * int64_t(elements) >= kManyValues;
  for (int64_t block = 0; block < blocks; ++block) {
    if (many && moments.ready()) {
      add_in_parallel(field, train, block, refuse_nan, transform, moments);
      break;
    }
    reader.read(block);
    check_values(field, reader, refuse_nan);
    if (transform) {
      for (double& value : reader.values()) value = std::isnan(value) ? value : transform(value);
    }
    moments.add(reader.values());
  }
  return moments;
}

void set_scale(const Field& field, const Moments& moments, NumberScale scale,
               std::span<double> shift, std::span<double> factor) {
  std::ranges::fill(shift, 0.0);
  std::ranges::fill(factor, 1.0);
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
    // The deviation of a constant is only rounding.
    const bool constant = moments.least(e) == moments.most(e) || !std::isfinite(1.0 / width);
    if (constant) shift[e] = moments.least(e);
    factor[e] = constant ? 1.0 : 1.0 / width;
  }
}

}  // namespace ridgeline::data
