#pragma once

#include <fmt/core.h>

#include "ridgeline/ops/augmentation.h"
#include "ridgeline/ops/value.h"
#include "ridgeline/ops/window.h"

namespace ridgeline {

// A Gather of images that shifts each by its own random draw, then mirrors it. With r = the sample
// of the set and (down, right, flip) = draw(seed, epoch[0], r):
//   y[i, c, p, q] = set[r, c, p - down, q' - right] * scale + shift,  q' = flip ? w-1-q : q
// where bytes outside the image are 0.
struct GatherAugment {
  Value set;    // [N, ...] uint8, in.numel() bytes a sample
  Value order;  // [M] int32, sample numbers of the set
  Value first;  // [1] int64, as in Gather
  Value tick;   // [1] int32
  Value epoch;  // [1] int64
  Value y;      // [n, in.numel()] float
  double scale = 1, shift = 0;
  Image in;
  Augmentation how;

  static constexpr const char* kName = "gather_augment";
  Values reads() const { return {set, order, first, tick, epoch}; }
  Values writes() const { return {y}; }
  std::string attributes() const {
    return fmt::format("scale={},shift={},in={},seed={},move={},flip={}", scale, shift,
                       to_string(in), how.seed, how.shift, how.flip);
  }
  double flops() const { return 2.0 * double(y.shape.numel()); }
  double bytes() const { return double(y.shape.numel()) + double(y.shape[0]) * 4 + size_of(y); }
};

}  // namespace ridgeline
