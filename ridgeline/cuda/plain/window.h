#pragma once

namespace ridgeline::cuda {

// ops/window.h for GPU functions: in 32 bits, and without text formatting.
struct Axis {
  int kernel = 1, stride = 1, pad = 0, dilation = 1;
};

// n images of c channels, h x w, with a window whose outputs are p x q.
struct PoolGeometry {
  int n = 0, c = 0, h = 0, w = 0, p = 0, q = 0;
  Axis down, right;
};

// A convolution of such images with k output channels. Group g connects input channels [g*group_in,
// (g+1)*group_in) with output channels [g*group_out, (g+1)*group_out).
struct ConvGeometry {
  int n = 0, c = 0, h = 0, w = 0, k = 0, p = 0, q = 0;
  int group_in = 0, group_out = 0;
  Axis down, right;
};

}  // namespace ridgeline::cuda
