#pragma once

#include <cstdint>

#include "ridgeline/core/thread_pool.h"

// Batch normalisation, ReLU and a 2 x 2 max pool (or none) in two passes over the images, and their
// gradients in two, fp32. Images have their channels in blocks, [n][blocks][pixels][block]:
// a vector holds channels of one pixel. The channels that pad the last block are zero and stay
// zero. Each call handles a range of samples on the calling thread.
namespace ridgeline::cpu::simd {

struct BlockedNormShape {
  int64_t n, channels, block, h, w;
  bool pooled;

  int64_t blocks() const { return (channels + block - 1) / block; }
  int64_t padded() const { return blocks() * block; }  // channels with padding
  int64_t pixels() const { return h * w; }
  double count() const { return double(n) * double(pixels()); }  // numbers per channel
  int64_t pooled_numbers() const { return pooled ? n * padded() * (h / 2) * (w / 2) : 0; }
};

// Mean and sum of squared deviations of each channel over some samples: [padded] each.
struct ChannelStatistics {
  double *mean, *squares;
};

struct BlockedNormArgs {
  BlockedNormShape shape;
  const float* x;
  float* a;                          // max(0, y), blocked; null if nothing reads it
  float* pooled;                     // blocked; null without a pool
  const float *mean, *scale, *beta;  // [padded]: y = (x - mean) * scale + beta
};

// With d, the gradient of y: dx = (d - offset - (x - mean) * rstd * slope) * scale. Products are of
// normalised numbers, and the scale comes last, since the difference may be far smaller than d: so
// large numbers do not overflow before others cancel them.
struct BlockedNormGradArgs {
  BlockedNormShape shape;
  const float *x, *a, *dy;  // dy is that of the pool, or of the ReLU without one
  float* dx;                // blocked
  int64_t dx_first = 0;     // the sample at dx[0]
  const float *mean, *rstd, *scale, *offset, *slope;  // [padded]
  // With a pool, like dy: which of a window's pixels receives its gradient (4: none). sums() writes
  // it, so that grad() need not read `a` from memory again.
  uint8_t* chosen;
};

struct BlockedNormFunctions {
  int64_t (*lanes)();  // of a vector; a block is a multiple of it
  // Adds the samples to the statistics of `before` others of the same thread; writes them if there
  // were none.
  void (*statistics)(const BlockedNormShape&, const float* x, Range samples, int64_t before,
                     const ChannelStatistics& to);
  void (*forward)(const BlockedNormArgs&, Range samples);
  // dbeta = sum d and dgamma = sum d * (x - mean) * rstd: [padded] each, written.
  void (*sums)(const BlockedNormGradArgs&, Range samples, double* dbeta, double* dgamma);
  void (*grad)(const BlockedNormGradArgs&, Range samples);
};

const BlockedNormFunctions& blocked_norm_functions();

}  // namespace ridgeline::cpu::simd
