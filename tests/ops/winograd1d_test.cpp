#include "ridgeline/ops/winograd1d.h"

#include <gtest/gtest.h>

#include <vector>

namespace ridgeline {
namespace {

// Tiles of m outputs of a filter of kPairs * 2 + 3 - m taps, as in ops/winograd1d.h, in double
// except for the matrix itself, whose coefficients are exact in fp32.
template <int kPairs>
std::vector<double> tile_outputs(const std::vector<double>& w, const std::vector<double>& x,
                                 int m) {
  constexpr Winograd1dMatrix<kPairs> matrix;
  const auto polynomial = [](const float* by, int degree, const double* from) {
    double sum = from[2 * degree];  // the leading coefficient is 1
    for (int k = 0; k < degree; ++k) sum += double(by[k]) * from[2 * k];
    return sum;
  };
  std::vector<double> y(size_t(m), 0.0);
  y[0] += matrix.zero_scale * w[0] * polynomial(matrix.all, kPairs, x.data());
  y[size_t(m) - 1] += w.back() * polynomial(matrix.all, kPairs, x.data() + 1);
  for (int i = 0; i < kPairs; ++i) {
    const double even = polynomial(matrix.others[i], kPairs - 1, x.data() + 2);
    const double odd = polynomial(matrix.others[i], kPairs - 1, x.data() + 1);
    for (const double p : {matrix.points[i], -matrix.points[i]}) {
      double u = 0, power = 1;
      for (size_t k = 0; k < w.size(); ++k, power *= p) u += power * w[k];
      const double product = matrix.pair_scale[i] * u * (even + p * odd);
      power = 1;
      for (int j = 0; j < m; ++j, power *= p) y[size_t(j)] += power * product;
    }
  }
  return y;
}

template <int kPairs>
void expect_convolution(int m) {
  const int taps = 2 * kPairs + 3 - m;
  std::vector<double> w, x;
  for (int k = 0; k < taps; ++k) w.push_back(1.0 / (k + 2) - 0.3);
  for (int k = 0; k < taps + m - 1; ++k) x.push_back(((k * 7) % 5 - 2) * 0.5 + 0.125 * k);
  const std::vector<double> y = tile_outputs<kPairs>(w, x, m);
  for (int j = 0; j < m; ++j) {
    double want = 0;
    for (int k = 0; k < taps; ++k) want += w[size_t(k)] * x[size_t(j + k)];
    EXPECT_NEAR(y[size_t(j)], want, 1e-12) << taps << " taps, output " << j << " of " << m;
  }
}

TEST(Winograd1d, TilesAreConvolutions) {
  expect_convolution<2>(4);  // three taps
  expect_convolution<3>(4);  // five
  expect_convolution<4>(4);  // seven
  expect_convolution<2>(2);  // five in tiles of two
  expect_convolution<3>(5);  // a filter's gradient: four numbers of dy, five taps out
}

TEST(Winograd1d, CountsTheProductsWhereFewestMeet) {
  const Winograd1dExtent padded{5, 2, 14}, whole{7, 0, 20}, small{5, 4, 3};
  EXPECT_EQ(winograd1d_products(32, padded, padded), 32 * 3 * 3);
  EXPECT_EQ(winograd1d_products(12, whole, whole), 12 * 7 * 7);
  EXPECT_EQ(winograd1d_products(10, small, whole), 10 * 1 * 7);
  EXPECT_EQ(winograd1d_products(10, {3, 1, 2}, {3, 0, 2}),
            10 * 2 * 2);  // an image below the filter
  EXPECT_EQ(winograd1d_products(10, {7, 3, 2}, {7, 3, 28}), 10 * 2 * 4);  // below it one way only
  EXPECT_EQ(winograd1d_products(10, {3, 3, 9}, whole), 0);
}

}  // namespace
}  // namespace ridgeline
