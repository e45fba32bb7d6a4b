#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ridgeline::data {

// Count, mean, deviation, minimum and maximum of each of `elements` numbers over samples that
// arrive in blocks; NaN is a missing value and skipped. Numbers are relative to the first one of
// their element, and every block is summed in two passes and merged with those before it (Chan,
// Golub and LeVeque 1983), so that nothing cancels; the result depends only on the blocks.
class Moments {
 public:
  explicit Moments(size_t elements);

  // `block` is [samples][elements].
  void add(std::span<const double> block);

  // The two halves of add(); if ready(), several threads may run the first half at once.
  struct Part {
    std::vector<double> counts, means, squares, least, most;
  };
  void sum(std::span<const double> block, Part& part) const;
  void join(const Part& part);
  // Every element has had a number, to which the others are relative.
  bool ready() const;

  size_t elements() const { return counts_.size(); }
  double count(size_t e) const { return counts_[e]; }
  double mean(size_t e) const { return origins_[e] + means_[e]; }
  double deviation(size_t e) const;  // of the population: divided by the count
  double least(size_t e) const { return least_[e]; }
  double most(size_t e) const { return most_[e]; }

 private:
  std::vector<double> origins_;  // the first numbers; means are relative to them
  std::vector<double> counts_, means_, squares_, least_, most_;
  Part part_;
};

}  // namespace ridgeline::data
