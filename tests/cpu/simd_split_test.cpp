// Products of fp32 numbers in three parts, by this machine's tiles and by the portable
// implementation.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ridgeline/core/philox.h"
#include "ridgeline/cpu/simd/split_matrix.h"

namespace ridgeline::cpu::simd {
namespace {

std::vector<float> numbers(int64_t count, uint64_t seed) {
  const Philox random{seed, 1};
  std::vector<float> all(size_t(count), 0.0f);
  for (size_t i = 0; i < all.size(); ++i) all[i] = float(2 * random.uniform(i) - 1);
  return all;
}

// The engines that this machine supports.
std::vector<const SplitEngine*> engines() {
  std::vector<const SplitEngine*> all{&split_portable_engine()};
  if (split_engine() != nullptr) all.push_back(split_engine());
  return all;
}

class SplitProducts : public testing::TestWithParam<const SplitEngine*> {
 protected:
  const SplitEngine* engine_ = GetParam();
};

// c = a[rows, depth] . b[depth, columns] + bias, with every operand in each of its forms.
TEST_P(SplitProducts, AreAsGoodAsFp32InEveryShape) {
  for (const int64_t rows : {1, 32, 45}) {
    for (const int64_t columns : {1, 37, 64, 300}) {
      for (const int64_t depth : {1, 31, 64, 700}) {
        for (const bool transposed : {false, true}) {
          const auto a = numbers(rows * depth, 1), b = numbers(depth * columns, 2);
          const auto bias = numbers(rows, 3);
          SplitMatrix left{engine_, split_blocks(rows), split_blocks(depth), nullptr};
          SplitMatrix right{engine_, split_blocks(columns), split_blocks(depth), nullptr};
          std::vector<uint16_t> of_left(left.size()), of_right(right.size());
          left.blocks = of_left.data();
          right.blocks = of_right.data();
          if (transposed) {
            left.take_left_transposed(a.data(), rows, rows, depth, {0, left.sides}, 0, left.depth);
          } else {
            left.take_left(a.data(), depth, rows, depth, {0, left.sides});
          }
          right.take_right(b.data(), columns, depth, columns, {0, right.sides});
          std::vector<float> c(size_t(rows * columns), -1.0f);
          engine_->begin();
          split_multiply({left, right, c.data(), kSplitSide * columns, kSplitSide, columns, rows,
                          columns, bias.data()},
                         {0, left.sides}, {0, right.sides});
          engine_->end();
          double worst = 0;
          for (int64_t i = 0; i < rows * columns; ++i) {
            const int64_t row = i / columns, column = i % columns;
            double sum = bias[size_t(row)], size = std::abs(sum);
            for (int64_t k = 0; k < depth; ++k) {
              const double product =
                  double(a[size_t(transposed ? k * rows + row : row * depth + k)]) *
                  double(b[size_t(k * columns + column)]);
              sum += product;
              size += std::abs(product);
            }
            worst = std::max(worst, std::abs(double(c[size_t(i)]) - sum) / size);
          }
          // The allowed error of a sum in fp32.
          EXPECT_LE(worst, double(depth + 2) * 0x1p-24)
              << engine_->name << ": " << rows << " x " << columns << " x " << depth;
        }
      }
    }
  }
}

// The parts of a number, multiplied by one.
float through(const SplitEngine& engine, float x, bool left) {
  std::vector<uint16_t> a(kSplitBlock), b(kSplitBlock);
  alignas(64) float c[kSplitSide * kSplitSide];
  const float one = 1;
  engine.split_left(left ? &x : &one, 1, 1, 1, a.data());
  engine.split_right(left ? &one : &x, 1, 1, 1, b.data());
  engine.begin();
  engine.multiply(a.data(), b.data(), 1, c, kSplitSide, false);
  engine.end();
  return c[0];
}

TEST_P(SplitProducts, KeepEveryBitOfANumber) {
  const float most = std::numeric_limits<float>::max();
  for (const bool left : {false, true}) {
    for (const float x : numbers(1000, 4)) EXPECT_EQ(through(*engine_, x, left), x);
    for (const float x : {most, -most, 0x1.fffffep100f, 0x1.fffffep-90f, 0.0f, 0x1.010101p3f}) {
      EXPECT_EQ(through(*engine_, x, left), x);
    }
    EXPECT_TRUE(std::isnan(through(*engine_, std::nanf(""), left)));
    const float endless = std::numeric_limits<float>::infinity();
    EXPECT_EQ(through(*engine_, endless, left), endless);
    EXPECT_EQ(through(*engine_, -endless, left), -endless);
  }
}

// A number whose parts have different signs, times infinity.
TEST_P(SplitProducts, WithInfinityAreInfinite) {
  const float x = 1 - 0x1p-12f, endless = std::numeric_limits<float>::infinity();
  std::vector<uint16_t> a(kSplitBlock), b(kSplitBlock);
  alignas(64) float c[kSplitSide * kSplitSide];
  for (const bool left : {false, true}) {
    engine_->split_left(left ? &endless : &x, 1, 1, 1, a.data());
    engine_->split_right(left ? &x : &endless, 1, 1, 1, b.data());
    engine_->begin();
    engine_->multiply(a.data(), b.data(), 1, c, kSplitSide, false);
    engine_->end();
    EXPECT_EQ(c[0], endless);
  }
}

// Pixels have one part, so three products give the result of six.
TEST_P(SplitProducts, OfSmallIntegersNeedOnePart) {
  const int64_t rows = 40, depth = 70, columns = 37;
  const auto a = numbers(rows * depth, 1);
  std::vector<float> b = numbers(depth * columns, 2), c[2];
  for (float& x : b) x = std::round(127.5f * (x + 1));
  for (const bool one_part : {false, true}) {
    SplitMatrix left{engine_, split_blocks(rows), split_blocks(depth), nullptr};
    SplitMatrix right{engine_, split_blocks(columns), split_blocks(depth), nullptr, one_part};
    std::vector<uint16_t> of_left(left.size()), of_right(right.size());
    left.blocks = of_left.data();
    right.blocks = of_right.data();
    left.take_left(a.data(), depth, rows, depth, {0, left.sides});
    right.take_right(b.data(), columns, depth, columns, {0, right.sides});
    c[one_part].resize(size_t(rows * columns));
    engine_->begin();
    split_multiply(
        {left, right, c[one_part].data(), kSplitSide * columns, kSplitSide, columns, rows, columns},
        {0, left.sides}, {0, right.sides});
    engine_->end();
  }
  EXPECT_EQ(c[0], c[1]);
}

// Blocks are the same for both layouts of an operand, also at the edges and with huge numbers.
TEST_P(SplitProducts, TakeTransposedOperands) {
  for (const auto& [high, wide] :
       {std::pair<int64_t, int64_t>{32, 32}, {5, 32}, {32, 17}, {1, 1}}) {
    auto plain = numbers(high * wide, 5), transposed = plain;
    plain.back() = 0x1.fffffep127f;
    for (int64_t i = 0; i < high * wide; ++i) {
      transposed[size_t(i % wide * high + i / wide)] = plain[size_t(i)];
    }
    std::vector<uint16_t> want(kSplitBlock, 1), got(kSplitBlock, 2);
    engine_->split_left(plain.data(), wide, high, wide, want.data());
    engine_->split_left_transposed(transposed.data(), high, high, wide, got.data());
    EXPECT_EQ(got, want) << "left, " << high << " x " << wide;
    engine_->split_right(plain.data(), wide, high, wide, want.data());
    engine_->split_right_transposed(transposed.data(), high, high, wide, got.data());
    EXPECT_EQ(got, want) << "right, " << high << " x " << wide;
  }
}

TEST_P(SplitProducts, FinishScalesAddsAndRectifies) {
  std::vector<float> c(2 * 40, -3.0f);
  c[5] = 2;
  c[6] = std::nanf("");
  const float bias[2] = {0.5f, 4.0f};
  engine_->finish(c.data(), 40, 2, 2.0f, bias, true);
  EXPECT_EQ(c[0], 0.0f);
  EXPECT_EQ(c[5], 4.5f);
  EXPECT_TRUE(std::isnan(c[6]));
  EXPECT_EQ(c[31], 0.0f);
  EXPECT_EQ(c[32], -3.0f) << "past the row";
  engine_->finish(c.data() + 40, 40, 1, 1.0f, nullptr, false);
  EXPECT_EQ(c[40], 0.0f);  // -3 * 2 + 4, rectified before
}

INSTANTIATE_TEST_SUITE_P(Engines, SplitProducts, testing::ValuesIn(engines()),
                         [](const auto& engine) { return std::string(engine.param->name); });

}  // namespace
}  // namespace ridgeline::cpu::simd
