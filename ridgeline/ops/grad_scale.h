#pragma once

#include <cmath>
#include <cstdint>

#include "ridgeline/core/philox.h"

namespace ridgeline {

// The arithmetic of GlobalNorm (update.h) after its sum of squares, for all kernels and both
// compilers.
struct GradScale {
  double norm = 0, scale = 1;
  int64_t clipped = 0;
  double loss_scale = 1;
  int64_t good = 0, skipped = 0;

  // `scaled` says that there is a loss scale.
  RIDGELINE_HD void update(double sum_of_squares, double max_norm, bool scaled, int64_t growth) {
    norm = sqrt(sum_of_squares) / loss_scale;
    if (!(norm <= 1.7976931348623157e308)) {        // infinite or NaN
      scale = scaled ? 0.0 : sum_of_squares * 0.0;  // the latter is NaN
      skipped += scaled ? 1 : 0;
      good = 0;
      if (growth > 0) loss_scale /= 2;
      return;
    }
    const bool clips = max_norm < norm;
    clipped += clips ? 1 : 0;
    scale = (clips ? max_norm / norm : 1.0) / loss_scale;
    good += 1;
    if (growth > 0 && good == growth) {
      loss_scale *= 2;
      good = 0;
    }
  }
};

}  // namespace ridgeline
