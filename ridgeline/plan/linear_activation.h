#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline {

// Matches a linear op and its activation if nothing else reads the value between them;
// cover(linear, activation) returns a kernel's cover of the two ops.
template <typename F>
Cover cover_linear_activation(const RemainingOps& rest, F cover) {
  const auto* linear = rest.get<Linear>(0);
  const auto* activation = rest.get<Activation>(1);
  if (linear == nullptr || activation == nullptr || activation->x.id != linear->y.id) {
    return Cover::no("the next ops are no linear and its activation");
  }
  if (!rest.dead_after(linear->y, 2)) {
    return Cover::no("the input of the activation is needed later");
  }
  Cover both = cover(*linear, *activation);
  if (both.ops > 0) both.skips = {linear->y.id};
  return both;
}

}  // namespace ridgeline
