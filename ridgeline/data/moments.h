#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ridgeline::data {

// Count, mean, deviation, least and most of each of `elements` numbers over samples that come in
// blocks; NaN is a missing value and left out. Numbers are taken from the first of their element,
// and every block is summed twice and joined to those before it (Chan, Golub and LeVeque 1983), so
// that nothing cancels; the result depends on the blocks, and on nothing else.
class Moments {
 public:
  explicit Moments(size_t elements);

  // `block` is [samples][elements].
  void add(std::span<const double> block);

  // add() in two halves, of which several threads may make the first at once, if ready().
  struct Part {
    std::vector<double> counts, means, squares, least, most;
  };
  void sum(std::span<const double> block, Part& part) const;
  void join(const Part& part);
  // Every element has had a number, from which the others are taken.
  bool ready() const;

  size_t elements() const { return counts_.size(); }
  double count(size_t e) const { return counts_[e]; }
  double mean(size_t e) const { return origins_[e] + means_[e]; }
  double deviation(size_t e) const;  // of the population: divided by the count
  double least(size_t e) const { return least_[e]; }
  double most(size_t e) const { return most_[e]; }

 private:
  std::vector<double> origins_;  // the first numbers; the means are from them
  std::vector<double> counts_, means_, squares_, least_, most_;
  Part part_;
};

}  // namespace ridgeline::data
