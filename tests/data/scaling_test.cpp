#include "ridgeline/data/scaling.h"

#include <cmath>
#include <random>
#include <vector>

#include "tests/data/files.h"

namespace ridgeline::data {
namespace {

using testing::expect_error;

TEST(Scaling, RawAndUnit) {
  const std::vector<uint8_t> bytes{0, 255};
  EXPECT_EQ(make_scaling(ScaleKind::raw, bytes)(200), 200.0f);
  EXPECT_EQ(make_scaling(ScaleKind::unit, bytes)(0), 0.0f);
  EXPECT_EQ(make_scaling(ScaleKind::unit, bytes)(255), 1.0f);
}

TEST(Scaling, StandardIsExactOnAKnownSet) {
  // 0 and 2 in equal numbers: mean 1, deviation 1.
  EXPECT_EQ(make_scaling(ScaleKind::standard, std::vector<uint8_t>{0, 2, 2, 0}),
            (Scaling{1.0f, -1.0f}));
}

TEST(Scaling, StandardGivesMeanZeroDeviationOne) {
  std::minstd_rand random(3);
  for (const size_t count : {2u, 16383u, 16384u, 16385u, 100003u}) {
    std::vector<uint8_t> bytes(count);
    for (uint8_t& byte : bytes) byte = uint8_t(200 + random() % 56);  // far from 0
    bytes[0] = 200;
    bytes[1] = 255;
    const Scaling scaling = make_scaling(ScaleKind::standard, bytes);
    double sum = 0, squares = 0;
    for (const uint8_t byte : bytes) {
      const double x = double(byte) * scaling.scale + scaling.shift;
      sum += x;
      squares += x * x;
    }
    // scale and shift are rounded to fp32, |shift| and byte * scale up to 255 / deviation.
    const double bound = 2 * 0x1p-24 * 255 * scaling.scale;
    EXPECT_LE(std::abs(sum / double(count)), bound) << count;
    EXPECT_LE(std::abs(squares / double(count) - 1), 3 * bound) << count;
  }
}

TEST(Scaling, StandardRefusesASetWithoutDeviation) {
  expect_error(ErrorKind::data, {"standard", "all pixels of the training set are equal"}, [] {
    make_scaling(ScaleKind::standard, std::vector<uint8_t>{7, 7, 7});
  });
  expect_error(ErrorKind::data, {"standard"}, [] { make_scaling(ScaleKind::standard, {}); });
}

}  // namespace
}  // namespace ridgeline::data
