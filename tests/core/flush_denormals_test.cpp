// Denormal numbers are zeros inside a FlushDenormals.
#include "ridgeline/core/flush_denormals.h"

#include <gtest/gtest.h>

#include <limits>

namespace ridgeline {
namespace {

float half_of_the_least() {
  volatile float least = std::numeric_limits<float>::min();
  return least * 0.5f;
}

TEST(FlushDenormals, EndsWithItsScope) {
  EXPECT_GT(half_of_the_least(), 0.0f);
  {
    const FlushDenormals flush;
    EXPECT_EQ(half_of_the_least(), 0.0f);
  }
  EXPECT_GT(half_of_the_least(), 0.0f);
}

}  // namespace
}  // namespace ridgeline
