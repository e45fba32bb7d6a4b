#pragma once

#include <vector>

#include "tests/support/oracle.h"

namespace ridgeline::test {

// How far a correct kernel may be from the oracle, element by element.
//
// This is a running error analysis: the oracle computes in fp64 op by op, and each value has a
// bound on the error of any correct evaluation in the kernel's arithmetic. The bound starts at zero
// (both are given the same inputs) and each op adds
//   - the effect of its operands' errors (|w| E_x + |x| E_w for a product, and so on),
//   - its own roundings, with u the unit roundoff of the accumulator type (fp64 for fp64, fp32 for
//     everything narrower) plus that of the oracle: (n + 2) u sum|x||w| for a sum of n products in
//     any order, kUlps u times the natural scale for a function like tanh,
//   - one rounding at the store, in the value's own type.
// A span of many ops is thus held as sharply as its arithmetic allows: a fused kernel that keeps
// intermediate results in registers makes fewer roundings than counted here, never more. If a
// result may jump (the derivative of relu at zero, the largest class), it is free only if the
// operands are within their bounds of the jump.
class Bounds {
 public:
  // E = 0 for all of `start`, whose float arrays must be fp64.
  Bounds(const Program& program, Arrays start);

  void run(size_t op);  // advances the oracle and the bounds by this op

  const Arrays& values() const { return values_; }
  const std::vector<double>& error(ValueId id) const { return errors_[size_t(id)]; }

 private:
  const Program& program_;
  Reference reference_;
  Arrays values_;
  std::vector<std::vector<double>> errors_;  // by value id, element by element
};

}  // namespace ridgeline::test
