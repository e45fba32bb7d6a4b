// Optimizer steps on flat arrays.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <limits>
#include <vector>

#include "ridgeline/cpu/simd/update.h"

namespace ridgeline::cpu::simd {
namespace {

// Takes the functions for these instruction sets of Highway while it lives; 0: all of this machine.
class Targets {
 public:
  explicit Targets(int64_t targets) { set(targets); }
  ~Targets() { set(0); }
  Targets(const Targets&) = delete;
  Targets& operator=(const Targets&) = delete;

 private:
  static void set(int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().DeInit();  // the next call chooses again
  }
};

// The best instruction set, and the portable one: on x86 it has no FMA.
class Updates : public ::testing::TestWithParam<int64_t> {
 protected:
  Targets targets_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Targets, Updates, ::testing::Values(0, HWY_STATIC_TARGET),
                         [](const auto& info) { return info.param == 0 ? "best" : "portable"; });

// Moments that would decay into denormal numbers, which are slow, become zero.
TEST_P(Updates, FlushMomentsThatAreDenormal) {
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

TEST_P(Updates, LetMomentsDecayToZero) {
  const std::vector<float> gradient(20, 0.0f);
  std::vector<float> w(20, 1.0f), m(20, 1e-30f), v(20, 1e-30f);
  AdamUpdate op;
  op.beta2 = op.beta1;
  for (int step = 0; step < 1000; ++step) {
    update_functions<float>().adam(
        {gradient.data(), 1, 0, w.data(), m.data(), v.data(), Adam<float>(op, 1e-3, 1000)},
        {0, 20});
  }
  EXPECT_EQ(m, std::vector<float>(20, 0.0f));
  EXPECT_EQ(v, std::vector<float>(20, 0.0f));
}

TEST_P(Updates, KeepNumbersThatAreNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> gradient(20, nan);
  std::vector<float> w(20, 1.0f), m(20, 0.0f), v(20, 0.0f);
  update_functions<float>().adam(
      {gradient.data(), 1, 0, w.data(), m.data(), v.data(), Adam<float>(AdamUpdate{}, 1e-3, 1)},
      {0, 20});
  for (const auto* moments : {&m, &v, &w}) {
    for (const float each : *moments) EXPECT_TRUE(std::isnan(each));
  }
}

}  // namespace
}  // namespace ridgeline::cpu::simd
