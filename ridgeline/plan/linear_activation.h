#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline {

// A linear and its activation, where nothing else reads what lies between: cover(linear,
// activation) says what a kernel makes of the two ops.
template <typename F>
Cover cover_linear_activation(const Rest& rest, F cover) {
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
