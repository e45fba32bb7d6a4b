#include "ridgeline/data/split.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "ridgeline/core/error.h"
#include "ridgeline/core/philox.h"
#include "ridgeline/core/text.h"

namespace ridgeline::data {
namespace {

// A stream beside those of core/philox.h; its low bits are the class, for stratify.
constexpr uint64_t kSplitStream = 6ull << 56;

void check_rule(int64_t n, const SplitRule& rule, size_t classes) {
  for (const double fraction : {rule.validation, rule.test}) {
    if (!(fraction >= 0 && fraction < 1)) {
      throw_error(ErrorKind::usage, "a split of {}: fractions are at least 0 and below 1",
                  fraction);
    }
  }
  if (rule.validation + rule.test >= 1) {
    throw_error(ErrorKind::usage,
                "a split of {} for validation and {} for testing leaves nothing for training",
                rule.validation, rule.test);
  }
  if (rule.stratify && rule.in_order) {
    throw_error(ErrorKind::usage, "a split is by class or in order of time, not both");
  }
  if (rule.stratify && classes != size_t(n)) {
    throw_error(ErrorKind::usage,
                "a split by class (stratify) needs a target of classes, one a sample");
  }
}

// Returns how many of n samples a fraction takes, rounded to nearest.
int64_t rounded_share(int64_t n, double fraction) {
  return int64_t(std::floor(double(n) * fraction + 0.5));
}

enum class SampleUse : uint8_t { train, validation, test };

// Fisher-Yates from the back, which stops once the last `count` elements are final.
template <typename T>
void shuffle_last(std::vector<T>& samples, int64_t count, const Philox& random) {
  const uint64_t end = samples.size() - uint64_t(count);
  for (uint64_t left = samples.size(); left > 1 && left > end; --left) {
    std::swap(samples[left - 1], samples[random.below(left, left)]);
  }
}

// The last samples are for testing, those before them for validation.
template <typename T>
void deal(const std::vector<T>& samples, int64_t validation, int64_t test,
          std::vector<SampleUse>& kept) {
  const auto end = samples.end(), middle = end - test, first = middle - validation;
  for (auto at = first; at != end; ++at) {
    kept[size_t(*at)] = at < middle ? SampleUse::validation : SampleUse::test;
  }
}

// T holds the numbers of all samples.
template <typename T>
void split_all(int64_t n, int64_t validation, int64_t test, const SplitRule& rule,
               std::vector<SampleUse>& kept) {
  std::vector<T> samples(static_cast<size_t>(n));
  std::iota(samples.begin(), samples.end(), T{0});
  if (!rule.in_order) shuffle_last(samples, validation + test, {rule.seed, kSplitStream});
  deal(samples, validation, test, kept);
}

std::pair<int64_t, int64_t> shares(int64_t n, const SplitRule& rule) {
  const auto least = [](double fraction) { return int64_t{fraction > 0}; };
  const int64_t validation = std::max(rounded_share(n, rule.validation), least(rule.validation));
  const int64_t test = std::max(rounded_share(n, rule.test), least(rule.test));
  if (validation + test >= n) {
    throw_error(ErrorKind::usage,
                "{} {} too few to split: {} for validation and {} for testing leave none for "
                "training",
                counted(n, "sample"), n == 1 ? "is" : "are", validation, test);
  }
  return {validation, test};
}

// Splits each class by the fractions, rounded down; the rest of a part comes from the classes whose
// share was rounded the most.
void split_classes(const SplitRule& rule, std::span<const int32_t> classes,
                   std::vector<SampleUse>& kept) {
  std::map<int32_t, std::vector<int64_t>> members;
  for (size_t i = 0; i < classes.size(); ++i) members[classes[i]].push_back(int64_t(i));
  const auto [validation, test] = shares(int64_t(classes.size()), rule);
  struct Shares {
    int32_t name;
    int64_t size, validation, test;
  };
  std::vector<Shares> all;
  for (const auto& [name, samples] : members) {
    const auto n = int64_t(samples.size());
    all.push_back({name, n, int64_t(double(n) * rule.validation), int64_t(double(n) * rule.test)});
  }
  const auto fill = [&](int64_t wanted, double fraction, int64_t Shares::*part) {
    int64_t have = 0;
    for (const Shares& shares : all) have += shares.*part;
    std::vector<Shares*> order;
    for (Shares& shares : all) order.push_back(&shares);
    std::ranges::stable_sort(order, std::ranges::greater{}, [&](const Shares* shares) {
      return double(shares->size) * fraction - double(shares->*part);
    });
    for (Shares* shares : order) {
      if (have >= wanted) break;
      if (shares->validation + shares->test + 1 >= shares->size) continue;  // training has priority
      ++(shares->*part);
      ++have;
    }
  };
  fill(validation, rule.validation, &Shares::validation);
  fill(test, rule.test, &Shares::test);
  for (const Shares& shares : all) {
    std::vector<int64_t>& samples = members[shares.name];
    shuffle_last(samples, shares.validation + shares.test,
                 {rule.seed, kSplitStream + 1 + uint64_t(uint32_t(shares.name))});
    deal(samples, shares.validation, shares.test, kept);
  }
}

}  // namespace

Split split_samples(int64_t n, const SplitRule& rule, std::span<const int32_t> classes) {
  check_rule(n, rule, classes.size());
  std::vector<SampleUse> kept(size_t(n), SampleUse::train);
  if (rule.stratify) {
    split_classes(rule, classes, kept);
  } else {
    const auto [validation, test] = shares(n, rule);
    // Half the memory is half the cache misses of a large set.
    if (n <= std::numeric_limits<int32_t>::max()) {
      split_all<int32_t>(n, validation, test, rule, kept);
    } else {
      split_all<int64_t>(n, validation, test, rule, kept);
    }
  }
  Split split;
  const auto used = [&](SampleUse use) { return size_t(std::ranges::count(kept, use)); };
  split.train.reserve(used(SampleUse::train));
  split.validation.reserve(used(SampleUse::validation));
  split.test.reserve(used(SampleUse::test));
  for (int64_t i = 0; i < n; ++i) {
    const SampleUse part = kept[size_t(i)];
    auto& list = part == SampleUse::train        ? split.train
                 : part == SampleUse::validation ? split.validation
                                                 : split.test;
    list.push_back(i);
  }
  return split;
}

}  // namespace ridgeline::data
