#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/cases.h"
#include "tests/support/oracle.h"

namespace ridgeline::test {

// Runs a case in fp64 with some values set by hand.
class Hand {
 public:
  explicit Hand(Case c) : case_(std::move(c)), arrays_(case_.inputs()) {}

  Hand& set(const Value& value, const std::vector<double>& numbers) {
    EXPECT_EQ(int64_t(numbers.size()), value.shape.numel());
    for (size_t i = 0; i < numbers.size(); ++i) set_element(arrays_[value], int64_t(i), numbers[i]);
    return *this;
  }
  Hand& run() {
    Reference().run(case_.program, 0, case_.program.ops.size(), arrays_);
    return *this;
  }
  // All numbers of a value; NaN where it is not written.
  const Hand& expect(const Value& value, const std::vector<double>& numbers) const {
    EXPECT_EQ(size_t(value.shape.numel()), numbers.size());
    return compare(value, numbers, 1e-14);
  }
  // The first numbers of a value, as printed with 12 digits.
  const Hand& expect_printed(const Value& value, const std::vector<double>& numbers) const {
    EXPECT_GE(size_t(value.shape.numel()), numbers.size());
    return compare(value, numbers, 2e-11);
  }

 private:
  const Hand& compare(const Value& value, const std::vector<double>& numbers,
                      double tolerance) const {
    const auto got = arrays_.doubles(value.id);
    for (size_t i = 0; i < std::min(got.size(), numbers.size()); ++i) {
      if (std::isnan(numbers[i])) {
        EXPECT_TRUE(std::isnan(got[i])) << i;
      } else {
        EXPECT_NEAR(got[i], numbers[i], tolerance * (1 + std::abs(numbers[i]))) << i;
      }
    }
    return *this;
  }

  Case case_;
  Arrays arrays_;
};

}  // namespace ridgeline::test
