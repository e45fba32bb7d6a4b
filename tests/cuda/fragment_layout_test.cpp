#include "ridgeline/cuda/half_product/fragment_layout.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

namespace ridgeline::cuda {
namespace {

// What mma.m16n8k8 does with the registers of a warp, according to the PTX manual: lane 4 g + t
// holds rows g and g + 8 of A at columns 2 t and 2 t + 1, rows 2 t and 2 t + 1 of column g of B,
// and rows g and g + 8 of D at columns 2 t and 2 t + 1.
using A = std::array<std::array<std::array<double, 2>, 2>, 32>;  // [lane][register][half]
using B = std::array<std::array<double, 2>, 32>;
A multiplied(const A& a, const B& b) {
  A d{};
  for (int g = 0; g < 8; ++g) {
    for (int t = 0; t < 4; ++t) {
      for (int upper = 0; upper < 2; ++upper) {
        for (int second = 0; second < 2; ++second) {
          const int column = 2 * t + second;
          for (int k = 0; k < 8; ++k) {
            d[size_t(4 * g + t)][size_t(upper)][size_t(second)] +=
                a[size_t(4 * g + k / 2)][size_t(upper)][size_t(k % 2)] *
                b[size_t(4 * column + k / 2)][size_t(k % 2)];
          }
        }
      }
    }
  }
  return d;
}

// No GPU of sm_75 is available: this test checks that fragments are taken from the positions that
// the instruction expects. On newer GPUs the table walk runs the same instruction.
TEST(FragmentLayout, FitsTheInstruction) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> numbers(-9, 9);
  std::array<std::array<double, 8>, 16> left{}, want{};
  std::array<std::array<double, 8>, 8> right{};
  for (auto& row : left) {
    for (double& x : row) x = numbers(random);
  }
  for (auto& row : right) {
    for (double& x : row) x = numbers(random);
  }
  for (size_t i = 0; i < 16; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      for (size_t k = 0; k < 8; ++k) want[i][j] += left[i][k] * right[k][j];
    }
  }
  A a{};
  B b{};
  for (int lane = 0; lane < 32; ++lane) {
    for (int half = 0; half < 2; ++half) {
      const auto [row, column] = fragment_b(lane);
      b[size_t(lane)][size_t(half)] = right[size_t(row + half)][size_t(column)];
      for (int index = 0; index < 2; ++index) {
        const auto at = fragment_a(lane, index);
        a[size_t(lane)][size_t(index)][size_t(half)] =
            left[size_t(at.row)][size_t(at.column + half)];
      }
    }
  }
  const A d = multiplied(a, b);
  for (int lane = 0; lane < 32; ++lane) {
    for (int index = 0; index < 2; ++index) {
      for (int half = 0; half < 2; ++half) {
        const auto at = fragment_d(lane, index);
        EXPECT_EQ(d[size_t(lane)][size_t(index)][size_t(half)],
                  want[size_t(at.row)][size_t(at.column + half)])
            << "lane " << lane << ", register " << index;
      }
    }
  }
}

}  // namespace
}  // namespace ridgeline::cuda
