// Optimizer steps on flat arrays.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "ridgeline/cpu/simd/update.h"

namespace ridgeline::cpu::simd {
namespace {

// Moments that would decay into denormal numbers, which are slow, become zero.
TEST(Updates, FlushMomentsThatAreDenormal) {
  const float least = std::numeric_limits<float>::min();
  const std::vector<float> gradient(20, 0.0f);
  std::vector<float> w(20, 1.0f), m(20, least), v(20, least);
  const Adam<float> adam(AdamUpdate{}, 1e-3, 1000);
  update_functions<float>().adam({gradient.data(), 1, 0, w.data(), m.data(), v.data(), adam},
                                 {0, 20});
  EXPECT_EQ(m, std::vector<float>(20, 0.0f));
  EXPECT_EQ(v, std::vector<float>(20, 0.0f));
  m.assign(20, least);
  update_functions<float>().sgd({gradient.data(), 1, 0, w.data(), m.data(), {0.1f, 0.5f}}, {0, 20});
  EXPECT_EQ(m, std::vector<float>(20, 0.0f));
}

}  // namespace
}  // namespace ridgeline::cpu::simd
