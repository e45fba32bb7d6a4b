#include "ridgeline/plan/pooled_grads.h"

#include <fmt/format.h>

namespace ridgeline {

std::optional<PooledGrads> find_pooled_grads(const RemainingOps& rest) {
  PooledGrads found;
  found.pool = rest.get<MaxPoolGrad>(0);
  if (found.pool == nullptr) return {};
  size_t at = 1;
  if (const auto* activation = rest.get<ActivationGrad>(at)) {
    if (activation->dy.id != found.pool->dx.id || activation->saved.id != found.pool->x.id) {
      return {};
    }
    found.activation = activation;
    ++at;
  }
  if (const auto* grad = rest.get<Conv2dGradX>(at)) {
    if (grad->dy.id != found.dz().id) return {};
    found.x = grad;
    ++at;
  }
  found.w = rest.get<Conv2dGradW>(at);
  if (found.w == nullptr || found.w->dy.id != found.dz().id) return {};
  return found;
}

Cover cover_pooled_grads(const RemainingOps& rest, const PooledGrads& grads) {
  Cover cover = Cover::of(grads.ops());
  Values inner{grads.pool->dx};
  if (grads.activation != nullptr) inner.push_back(grads.activation->dx);
  for (const Value& value : inner) {
    if (!rest.dead_after(value, grads.ops())) {
      return Cover::no(fmt::format("{} is wanted later", rest.program.info(value.id).name));
    }
    cover.skips.push_back(value.id);
  }
  return cover;
}

}  // namespace ridgeline
