#pragma once

#include "ridgeline/cuda/kernel.h"

// Spans of a pool and the activation before it, which the kernels of several folders take.
namespace ridgeline::cuda {

// Whether the windows are 2 x 2 and do not overlap.
inline bool quads(const PoolShape& shape) {
  const Slide two{2, 2, 0, 1};
  return shape.window == Window{two, two};
}

// An activation and the pool of its output; refuse(activation, pool) says why a kernel does not
// take them, "" if it does.
template <typename F>
Cover cover_activation_pool(const RemainingOps& rest, F refuse) {
  const auto* activation = rest.get<Activation>(0);
  const auto* pool = rest.get<MaxPool>(1);
  if (activation == nullptr || pool == nullptr || pool->x.id != activation->y.id) {
    return Cover::no("the next ops are no activation and its pool");
  }
  if (!has_activation_fn(activation->kind)) return Cover::no(kNoActivationFn);
  return cover_unless(refuse(*activation, *pool), 2);
}

// The gradients of the two, if no other op reads the value between; refuse(pool, activation).
template <typename F>
Cover cover_pool_activation_grad(const RemainingOps& rest, F refuse) {
  const auto* pool = rest.get<MaxPoolGrad>(0);
  const auto* activation = rest.get<ActivationGrad>(1);
  if (pool == nullptr || activation == nullptr || activation->dy.id != pool->dx.id ||
      activation->saved.id != pool->x.id) {
    return Cover::no("the next ops are no gradients of a pool and the activation it pools");
  }
  if (!rest.dead_after(pool->dx, 2)) return Cover::no("the pool's gradient is needed later");
  if (!has_activation_fn(activation->kind)) return Cover::no(kNoActivationFn);
  Cover cover = cover_unless(refuse(*pool, *activation), 2);
  if (cover.ops > 0) cover.skips = {pool->dx.id};
  return cover;
}

}  // namespace ridgeline::cuda
