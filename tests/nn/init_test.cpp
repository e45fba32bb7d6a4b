#include "ridgeline/nn/init.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ridgeline/core/buffer.h"
#include "tests/nn/expect_error.h"

namespace ridgeline::nn {
namespace {

constexpr int64_t kOut = 300, kIn = 400;
constexpr Fans kFans{kIn, kOut};

std::vector<double> sample(const Init& init, uint64_t seed = 7, uint64_t param = 0) {
  const HostTensor tensor(DType::fp64, {kOut, kIn});
  fill(init, kFans, seed, param, tensor.view());
  const auto values = tensor.span<double>();
  return {values.begin(), values.end()};
}

struct Moments {
  double mean, deviation, largest;
};

Moments moments(const std::vector<double>& values) {
  double sum = 0, squares = 0, largest = 0;
  for (const double x : values) {
    sum += x;
    squares += x * x;
    largest = std::max(largest, std::abs(x));
  }
  const double n = double(values.size());
  return {sum / n, std::sqrt(squares / n - sum / n * sum / n), largest};
}

struct Expected {
  Init init;
  double deviation;
  double bound;  // 0: none
};

class InitStatistics : public ::testing::TestWithParam<Expected> {};

// With n = 120,000 samples the mean errs by sigma/sqrt(n) and the deviation by at most about
// sigma/sqrt(2n) (normal; less for uniform): five of those.
TEST_P(InitStatistics, MatchTheFormula) {
  const auto& [init, deviation, bound] = GetParam();
  const double n = double(kOut * kIn);
  const Moments got = moments(sample(init));
  EXPECT_NEAR(got.mean, 0, 5 * deviation / std::sqrt(n));
  EXPECT_NEAR(got.deviation, deviation, 5 * deviation / std::sqrt(2 * n));
  if (bound > 0) {
    EXPECT_LE(got.largest, bound);
    EXPECT_GT(got.largest, bound * 0.999);
  } else {
    EXPECT_GT(got.largest, 3.5 * deviation);  // a normal of this many samples has tails
  }
}

const double kHe = std::sqrt(2.0 / kIn), kXavier = std::sqrt(2.0 / (kIn + kOut));
const double kRoot3 = std::sqrt(3.0);

INSTANTIATE_TEST_SUITE_P(
    All, InitStatistics,
    ::testing::Values(
        Expected{{InitKind::standard}, 1 / std::sqrt(3.0 * kIn), 1 / std::sqrt(double(kIn))},
        Expected{{InitKind::normal, 0.01}, 0.01, 0},
        Expected{{InitKind::uniform, 0.25}, 0.25 / kRoot3, 0.25},
        Expected{{InitKind::xavier, 0, Distribution::uniform}, kXavier, kXavier* kRoot3},
        Expected{{InitKind::xavier, 0, Distribution::normal}, kXavier, 0},
        Expected{{InitKind::he, 0, Distribution::uniform}, kHe, kHe* kRoot3},
        Expected{{InitKind::he, 0, Distribution::normal}, kHe, 0}));

TEST(Init, ZerosOverwrite) {
  const HostTensor tensor(DType::fp32, {5});
  for (float& x : tensor.span<float>()) x = 3;
  fill({InitKind::zeros}, {}, 1, 0, tensor.view());
  for (const float x : tensor.span<float>()) EXPECT_EQ(x, 0);
}

TEST(Init, IsAFunctionOfSeedAndParameter) {
  const Init he{InitKind::he, 0, Distribution::normal};
  EXPECT_EQ(sample(he, 1, 2), sample(he, 1, 2));
  EXPECT_NE(sample(he, 1, 2), sample(he, 2, 2));
  EXPECT_NE(sample(he, 1, 2), sample(he, 1, 3));
}

TEST(Init, Fp32IsFp64Rounded) {
  const HostTensor narrow(DType::fp32, {kOut, kIn});
  fill({InitKind::standard}, kFans, 7, 0, narrow.view());
  const std::vector<double> wide = sample({InitKind::standard});
  const auto floats = narrow.span<float>();
  for (size_t i = 0; i < wide.size(); ++i) ASSERT_EQ(floats[i], float(wide[i]));
}

TEST(Init, RefusesOtherTypes) {
  const HostTensor bytes(DType::uint8, {2});
  test::expect_error(ErrorKind::usage, {"fp64 or fp32", "uint8"},
                     [&] { fill({}, {}, 1, 0, bytes.view()); });
}

TEST(Init, ReadsBackWhatItWrites) {
  for (const Init& init :
       {Init{InitKind::standard}, Init{InitKind::zeros}, Init{InitKind::normal, 0.01},
        Init{InitKind::uniform, 1e-3}, Init{InitKind::xavier, 0, Distribution::normal},
        Init{InitKind::he, 0, Distribution::uniform}}) {
    ConfigTable table = ConfigTable::parse("init = " + to_toml(init), "t.toml");
    EXPECT_EQ(read_init(table, "init"), init) << to_toml(init);
  }
  ConfigTable table = ConfigTable::parse("init = \"he\"", "t.toml");
  EXPECT_EQ(read_init(table, "init"), Init{InitKind::he});
}

TEST(Init, RefusesWhatItCannotRead) {
  const auto read = [](const char* text) {
    return [text] {
      ConfigTable table = ConfigTable::parse(text, "t.toml");
      read_init(table, "init");
    };
  };
  test::expect_error(ErrorKind::usage, {"t.toml:1:8", "needs std"}, read("init = \"normal\""));
  test::expect_error(ErrorKind::usage, {"'xaver'", "'xavier'"}, read("init = \"xaver\""));
  test::expect_error(ErrorKind::usage, {"init.std", "missing"},
                     read("init = { type = \"normal\" }"));
  test::expect_error(ErrorKind::usage, {"at least 0", "-1"},
                     read("init = { type = \"normal\", std = -1 }"));
  test::expect_error(ErrorKind::usage, {"unknown key 'std'"},
                     read("init = { type = \"he\", std = 1 }"));
  test::expect_error(ErrorKind::usage, {"must be a table", "3"}, read("init = 3"));
}

}  // namespace
}  // namespace ridgeline::nn
