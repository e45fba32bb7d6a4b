#include "ridgeline/data/moments.h"

#include <algorithm>
#include <cmath>
#include <limits>

// Uses wider vectors if the machine has them, but not AVX-512: there the compiler would fuse
// multiplications with additions, and machines would differ in the last bits.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define RIDGELINE_WIDER __attribute__((target_clones("avx2", "default")))
#else
#define RIDGELINE_WIDER
#endif

namespace ridgeline::data {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

RIDGELINE_WIDER void sum_block(const double* __restrict block, size_t samples, size_t width,
                               const double* __restrict origins, double* __restrict counts,
                               double* __restrict means, double* __restrict least,
                               double* __restrict most) {
  for (size_t s = 0; s < samples; ++s, block += width) {
    for (size_t e = 0; e < width; ++e) {
      const bool there = block[e] == block[e];
      counts[e] += there ? 1.0 : 0.0;
      means[e] += there ? block[e] - origins[e] : 0.0;
      least[e] = block[e] < least[e] ? block[e] : least[e];
      most[e] = block[e] > most[e] ? block[e] : most[e];
    }
  }
}

RIDGELINE_WIDER void sum_squares(const double* __restrict block, size_t samples, size_t width,
                                 const double* __restrict origins, const double* __restrict means,
                                 double* __restrict squares) {
  for (size_t s = 0; s < samples; ++s, block += width) {
    for (size_t e = 0; e < width; ++e) {
      const double apart = block[e] == block[e] ? block[e] - origins[e] - means[e] : 0.0;
      squares[e] += apart * apart;
    }
  }
}

}  // namespace

Moments::Moments(size_t elements)
    : origins_(elements),
      counts_(elements),
      means_(elements),
      squares_(elements),
      least_(elements, kInfinity),
      most_(elements, -kInfinity) {}

bool Moments::ready() const {
  return std::ranges::all_of(counts_, [](double count) { return count > 0; });
}

void Moments::sum(std::span<const double> block, Part& part) const {
  const size_t width = elements(), samples = width == 0 ? 0 : block.size() / width;
  for (auto* each : {&part.counts, &part.means, &part.squares}) each->assign(width, 0.0);
  part.least.assign(width, kInfinity);
  part.most.assign(width, -kInfinity);
  sum_block(block.data(), samples, width, origins_.data(), part.counts.data(), part.means.data(),
            part.least.data(), part.most.data());
  for (size_t e = 0; e < width; ++e) part.means[e] /= std::max(1.0, part.counts[e]);
  sum_squares(block.data(), samples, width, origins_.data(), part.means.data(),
              part.squares.data());
}

void Moments::join(const Part& part) {
  for (size_t e = 0; e < elements(); ++e) {
    least_[e] = std::min(least_[e], part.least[e]);
    most_[e] = std::max(most_[e], part.most[e]);
    const double count = part.counts[e], total = counts_[e] + count;
    if (count == 0) continue;
    const double apart = part.means[e] - means_[e];
    means_[e] += apart * (count / total);
    squares_[e] += part.squares[e] + apart * apart * (counts_[e] * count / total);
    counts_[e] = total;
  }
}

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
  sum(block, part_);
  join(part_);
}

double Moments::deviation(size_t e) const {
  return counts_[e] > 0 ? std::sqrt(squares_[e] / counts_[e]) : 0.0;
}

}  // namespace ridgeline::data
