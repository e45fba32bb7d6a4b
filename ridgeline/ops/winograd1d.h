#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

// 1-D Winograd convolutions (Toom-Cook) along the rows of an image. They need fewer
// multiplications: m neighbouring outputs depend on n = taps + m - 1 inputs, and follow from n
// products instead of m * taps. With the points 0, +-1, +-2, +-1/2, +-3/4 (as many as are needed)
// and infinity, in this order:
//   v_p = the value at p of the inputs' polynomial without the root p
//   u_p = sum over k < taps of p^k w[k] / D(p)
//   y_j = sum over p of p^j * u_p v_p
// Products may be summed over channels and rows of a filter before they are transformed into y.
namespace ridgeline {

// The transforms for kPairs pairs of points, in even and odd parts: coefficients of y = x^2.
template <int kPairs>
struct Winograd1dMatrix {
  double points[4] = {1, 2, 0.5, 0.75};  // of the pairs +-p
  float all[kPairs + 1];                 // of the product of all y - p^2
  float others[kPairs][kPairs];          // without the pair
  double zero_scale = 1;                 // 1 / D(0)
  double pair_scale[kPairs] = {};        // 1 / D(+-p)

  constexpr Winograd1dMatrix() : all(), others() {
    std::array<double, kPairs + 1> c = product(-1);
    for (int k = 0; k <= kPairs; ++k) all[k] = float(c[size_t(k)]);
    zero_scale = 1 / c[0];
    for (int i = 0; i < kPairs; ++i) {
      c = product(i);
      const double y = points[i] * points[i];
      double value = 0;
      for (int k = kPairs - 1; k >= 0; --k) {
        others[i][k] = float(c[size_t(k)]);
        value = value * y + c[size_t(k)];
      }
      pair_scale[i] = 1 / (2 * y * value);
    }
  }

 private:
  constexpr std::array<double, kPairs + 1> product(int without) const {
    std::array<double, kPairs + 1> c{};
    c[0] = 1;
    int degree = 0;
    for (int i = 0; i < kPairs; ++i) {
      if (i == without) continue;
      const double root = points[i] * points[i];
      c[size_t(++degree)] = 0;
      for (int k = degree; k > 0; --k) c[size_t(k)] = c[size_t(k - 1)] - root * c[size_t(k)];
      c[0] *= -root;
    }
    return c;
  }
};

// The error of an output grows with its neighbours' magnitudes. With at least this many products it
// stays far below the bound of its own sum: with tiles of four outputs and filters of up to five
// taps, 49 products reached 0.8 of the bound and 196 an eighth; with seven taps, 128 at a corner
// reached twice the bound and 512 a third; with tiles of two, which save less, 49 reached a fifth.
constexpr int64_t kWinograd1dFewestOfTwo = 40;
constexpr int64_t winograd1d_fewest_of_four(int64_t kernel) { return kernel > 5 ? 512 : 128; }

// The number of products in a sum over c channels where it is smallest: at a corner of the padded
// image.
struct Winograd1dExtent {
  int64_t kernel, pad, size;
};
inline int64_t winograd1d_products(int64_t c, const Winograd1dExtent& down,
                                   const Winograd1dExtent& right) {
  const auto met = [](const Winograd1dExtent& e) {
    return std::max<int64_t>(std::min(e.kernel - e.pad, e.size), 0);
  };
  return c * met(down) * met(right);
}

}  // namespace ridgeline
