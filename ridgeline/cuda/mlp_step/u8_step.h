#pragma once

#include <cmath>
#include <string>

#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/tile/head.h"
#include "ridgeline/plan/mlp_step.h"

namespace ridgeline::cuda {

// The byte that scale and shift map to 0, or -1 if there is none.
inline int center_of(const Gather& gather) {
  const double center = -gather.shift / gather.scale, whole = std::nearbyint(center);
  return whole >= 0 && whole <= 255 && std::abs(center - whole) < 1e-9 ? int(whole) : -1;
}

// Why the kernels that train one hidden layer over u8 inputs do not take a step; "" if they do.
inline std::string refuse_u8_step(const MlpStepOps& step) {
  if (!step.refusal.empty()) return step.refusal;
  if (step.layers.size() != 2) return "takes two layers";
  if (step.copies) return "takes no copies of weights";
  const MlpStepOps::Layer &first = step.layers[0], &top = step.layers[1];
  const SgdUpdate& sgd = *first.sgd_w;
  if (!first.linear->b || first.sgd_b == nullptr) return "wants a bias below";
  if (!saves_output(first.activation->kind)) return "takes relu, tanh and sigmoid only";
  if (sgd.nesterov || sgd.grad_scale) return "takes no nesterov momentum and no scaled loss";
  if (top.linear->out() > kHeadMostClasses) {
    return fmt::format("takes up to {} outputs", kHeadMostClasses);
  }
  if (center_of(*step.inputs) < 0) return "wants 0 in place of one of the 256 bytes";
  return {};
}

}  // namespace ridgeline::cuda
