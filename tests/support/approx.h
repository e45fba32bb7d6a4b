#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace ridgeline::test {

// A number and the allowed error of its computed version, in arithmetic of unit roundoff u. Sums
// are charged for the magnitudes of both terms, not of the result, so that any algebraically equal
// order of additions is within the bound.
struct Approx {
  double value = 0, error = 0, u = 0;
};

inline Approx operator*(Approx a, Approx b) {
  const double value = a.value * b.value;
  const double error =
      std::abs(a.value) * b.error + std::abs(b.value) * a.error + a.error * b.error;
  return {value, error + a.u * (std::abs(value) + error), a.u};
}
inline Approx operator+(Approx a, Approx b) {
  const double error = a.error + b.error;
  return {a.value + b.value, error + a.u * (std::abs(a.value) + std::abs(b.value) + error), a.u};
}
inline Approx operator-(Approx a, Approx b) { return a + Approx{-b.value, b.error, b.u}; }
inline Approx operator/(Approx a, Approx b) {
  const double least = std::abs(b.value) - b.error;
  if (least <= 0) return {a.value / b.value, std::numeric_limits<double>::infinity(), a.u};
  const double value = a.value / b.value;
  const double error = (a.error + std::abs(value) * b.error) / least;
  return {value, error + a.u * (std::abs(value) + error), a.u};
}
inline Approx sqrt(Approx a) {
  const double root = std::sqrt(a.value);
  const double least = std::sqrt(std::max(0.0, a.value - a.error));
  const double error = a.error > 0 ? std::min(a.error / (root + least), std::sqrt(a.error)) : 0.0;
  return {root, error + a.u * (root + error), a.u};
}

}  // namespace ridgeline::test
