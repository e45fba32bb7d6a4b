// Denormal numbers are zeros inside a FlushDenormals and on the threads of a pool.
#include "ridgeline/core/flush_denormals.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "ridgeline/core/thread_pool.h"

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

TEST(FlushDenormals, HoldsOnThePoolsThreads) {
  ThreadPool pool(3);
  std::vector<float> halves(3, -1.0f);
  pool.run([&](int thread) { halves[size_t(thread)] = half_of_the_least(); });
  EXPECT_GT(halves[0], 0.0f);  // the caller's own thread is as it was
  EXPECT_EQ(halves[1], 0.0f);
  EXPECT_EQ(halves[2], 0.0f);
}

}  // namespace
}  // namespace ridgeline
