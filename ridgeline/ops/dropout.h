#pragma once

#include <fmt/core.h>

#include "ridgeline/core/philox.h"
#include "ridgeline/ops/value.h"

namespace ridgeline {

// Whether an element survives is a pure function of (seed, layer, step, element), so the mask is
// never stored: the backward op and every rank compute it again. `element` counts row-major over
// the *global* batch.
struct DropoutMask {
  double p = 0.5;  // probability of zero, in [0, 1)
  uint64_t seed = 0;
  uint32_t layer = 0;
  int64_t sample_offset = 0;  // this rank's first sample in the global batch

  // The Philox stream of one layer's mask at one step.
  RIDGELINE_HD static uint64_t stream(uint32_t layer, uint64_t step) {
    return streams::kDropout + (uint64_t{layer} << 40) + step;
  }
  RIDGELINE_HD static bool keep(uint64_t seed, uint32_t layer, uint64_t step, uint64_t element,
                                float p) {
    const Philox random{seed, stream(layer, step)};
    return random.uniform(element) >= p;
  }
};

// y = keep ? x / (1 - p) : 0.  The backward op is the same function of dy, so both are this op.
struct Dropout {
  Value x;     // [n, ...]
  Value step;  // [1] int64, training steps done before this launch
  Value tick;  // [1] int32, steps since then
  Value y;
  DropoutMask mask;

  static constexpr const char* kName = "dropout";
  Values reads() const { return {x, step, tick}; }
  Values writes() const { return {y}; }
  std::string attributes() const {
    return fmt::format("p={},layer={},seed={},sample={}", mask.p, mask.layer, mask.seed,
                       mask.sample_offset);
  }
  double flops() const { return 20.0 * double(y.shape.numel()); }  // ten Philox rounds for four
  double bytes() const { return size_of(x) + size_of(y); }
};

}  // namespace ridgeline
