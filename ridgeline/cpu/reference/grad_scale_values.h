#pragma once

#include "ridgeline/ops/grad_scale.h"
#include "ridgeline/plan/kernel.h"

namespace ridgeline::cpu {

// The host memory of a GlobalNorm's values.
struct GradScaleValues {
  double *norm, *scale, *loss_scale;  // loss_scale and those after it may be null
  int64_t *clipped, *good, *skipped;

  GradScaleValues(const Binding& binding, const GlobalNorm& op)
      : norm(binding.write(op.norm).as<double>()),
        scale(binding.write(op.scale).as<double>()),
        loss_scale(binding.write(op.loss_scale).as<double>()),
        clipped(binding.write(op.clipped).as<int64_t>()),
        good(binding.write(op.good).as<int64_t>()),
        skipped(binding.write(op.skipped).as<int64_t>()) {}

  void update(double sum_of_squares, double max_norm, int64_t growth) const {
    const bool scaled = loss_scale != nullptr;
    GradScale now{.clipped = *clipped};
    if (scaled) now.loss_scale = *loss_scale, now.good = *good, now.skipped = *skipped;
    now.update(sum_of_squares, max_norm, scaled, growth);
    *norm = now.norm;
    *scale = now.scale;
    *clipped = now.clipped;
    if (scaled) *loss_scale = now.loss_scale, *good = now.good, *skipped = now.skipped;
  }
};

}  // namespace ridgeline::cpu
