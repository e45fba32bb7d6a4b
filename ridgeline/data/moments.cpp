#include "ridgeline/data/moments.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ridgeline::data {

Moments::Moments(size_t elements)
    : origins_(elements),
      counts_(elements),
      means_(elements),
      squares_(elements),
      least_(elements, std::numeric_limits<double>::infinity()),
      most_(elements, -std::numeric_limits<double>::infinity()),
      block_counts_(elements),
      block_means_(elements),
      block_squares_(elements) {}

void Moments::add(std::span<const double> block) {
  const size_t width = elements();
  if (width == 0) return;
  const size_t samples = block.size() / width;
  for (size_t e = 0; e < width; ++e) {
    for (size_t s = 0; counts_[e] == 0 && s < samples; ++s) {
      const double first = block[s * width + e];
      if (first != first) continue;
      origins_[e] = first;
      break;
    }
  }
  std::ranges::fill(block_counts_, 0);
  std::ranges::fill(block_means_, 0);
  std::ranges::fill(block_squares_, 0);
  for (size_t s = 0; s < samples; ++s) {
    const double* sample = block.data() + s * width;
    for (size_t e = 0; e < width; ++e) {
      const bool there = sample[e] == sample[e];
      block_counts_[e] += there ? 1.0 : 0.0;
      block_means_[e] += there ? sample[e] - origins_[e] : 0.0;
      least_[e] = sample[e] < least_[e] ? sample[e] : least_[e];
      most_[e] = sample[e] > most_[e] ? sample[e] : most_[e];
    }
  }
  for (size_t e = 0; e < width; ++e) block_means_[e] /= std::max(1.0, block_counts_[e]);
  for (size_t s = 0; s < samples; ++s) {
    const double* sample = block.data() + s * width;
    for (size_t e = 0; e < width; ++e) {
      const double apart = sample[e] == sample[e] ? sample[e] - origins_[e] - block_means_[e] : 0.0;
      block_squares_[e] += apart * apart;
    }
  }
  for (size_t e = 0; e < width; ++e) {
    const double count = block_counts_[e], total = counts_[e] + count;
    if (count == 0) continue;
    const double apart = block_means_[e] - means_[e];
    means_[e] += apart * (count / total);
    squares_[e] += block_squares_[e] + apart * apart * (counts_[e] * count / total);
    counts_[e] = total;
  }
}

double Moments::deviation(size_t e) const {
  return counts_[e] > 0 ? std::sqrt(squares_[e] / counts_[e]) : 0.0;
}

}  // namespace ridgeline::data
