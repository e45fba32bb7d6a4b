#pragma once

#include "ridgeline/core/philox.h"

namespace ridgeline {

// This struct is separate from its op, so that kernels can include it. The change of an image is a
// pure function of (seed, epoch, sample of the set): the same on every device and for any number of
// ranks or batch size.
struct Augmentation {
  uint64_t seed = 0;
  int64_t shift = 0;  // each axis moves by -shift..shift pixels
  bool flip = false;  // left and right are exchanged with probability 1/2

  struct Draw {
    int64_t down = 0, right = 0;
    bool flip = false;
  };
  RIDGELINE_HD static Draw draw(uint64_t seed, int64_t shift, bool flip, uint64_t epoch,
                                uint64_t sample) {
    const Philox::Words words = Philox{seed, streams::kAugment + epoch}.words(sample);
    const uint64_t places = 2 * uint64_t(shift) + 1;
    const auto move = [&](uint32_t word) {
      return int64_t((uint64_t{word} * places) >> 32) - shift;
    };
    return {move(words.w[0]), move(words.w[1]), flip && (words.w[2] >> 31) != 0};
  }
};

}  // namespace ridgeline
