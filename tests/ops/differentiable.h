#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/support/cases.h"
#include "tests/support/oracle.h"

namespace ridgeline::test {

// A scalar function and its gradient, as one program: ops [0, forward) compute `result`, the others
// the gradients of sum(weight * result), or of result[tick] itself when there is no weight.
struct Differentiable {
  Case c;
  size_t forward;
  Value result, weight;
  std::vector<std::pair<Value, Value>> wanted;  // value, its gradient
};

inline double scalar(const Differentiable& d, const Arrays& arrays) {
  const auto result = arrays.doubles(d.result.id);
  if (!d.weight) return result[2];  // cases run at the third step
  const auto weight = arrays.doubles(d.weight.id);
  double sum = 0;
  for (size_t i = 0; i < result.size(); ++i) sum += weight[i] * result[i];
  return sum;
}

// With steps of h = 1e-5 a difference has an error of about h^2/6 f''' (1e-10) plus 2^-53 |f| / h
// (1e-10 for |f| of 10): 1e-7 is far above both, and far below any wrong derivative. `spoil` may
// change the gradients before they are compared.
inline testing::AssertionResult gradients_agree(
    const Differentiable& d, const std::function<void(Arrays&)>& spoil = [](Arrays&) {}) {
  constexpr double kStep = 1e-5, kTolerance = 1e-7;
  const Program& program = d.c.program;
  Reference reference;
  const Arrays inputs = d.c.inputs(3);
  Arrays all = inputs;
  reference.run(program, 0, program.ops.size(), all);
  spoil(all);
  for (const auto& [value, gradient] : d.wanted) {
    for (int64_t i = 0; i < value.shape.numel(); ++i) {
      const auto moved = [&, &at = value](double by) {
        Arrays arrays = inputs;
        arrays[at].as<double>()[i] += by;
        reference.run(program, 0, d.forward, arrays);
        return scalar(d, arrays);
      };
      const double numeric = (moved(kStep) - moved(-kStep)) / (2 * kStep);
      const double exact = all[gradient].as<double>()[i];
      if (!(std::abs(exact - numeric) <= kTolerance * (1 + std::abs(numeric)))) {
        return testing::AssertionFailure() << program.info(gradient.id).name << "[" << i << "] is "
                                           << exact << ", differences give " << numeric;
      }
    }
  }
  return testing::AssertionSuccess();
}

// A control: each gradient, slightly wrong in its last element, must fail the check.
inline void expect_slips_noticed(const Differentiable& d) {
  for (const auto& wanted : d.wanted) {
    const Value& gradient = wanted.second;
    const auto spoil = [&](Arrays& arrays) {
      const int64_t last = gradient.shape.numel() - 1;
      arrays[gradient].as<double>()[last] = arrays[gradient].as<double>()[last] * 1.001 + 1e-6;
    };
    EXPECT_FALSE(gradients_agree(d, spoil))
        << d.c.name << " " << d.c.program.info(gradient.id).name;
  }
}

}  // namespace ridgeline::test
