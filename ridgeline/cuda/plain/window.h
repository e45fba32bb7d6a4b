#pragma once

namespace ridgeline::cuda {

// ops/window.h for kernels: 32 bits, and nothing that text needs.
struct Axis {
  int kernel = 1, stride = 1, pad = 0, dilation = 1;
};

// n images of c channels, h x w, under a window whose outputs are p x q.
struct PoolGeometry {
  int n = 0, c = 0, h = 0, w = 0, p = 0, q = 0;
  Axis down, right;
};

// The same with k output channels. Group g joins the input channels [g*group_in, (g+1)*group_in)
// with the output channels [g*group_out, (g+1)*group_out).
struct ConvGeometry {
  int n = 0, c = 0, h = 0, w = 0, k = 0, p = 0, q = 0;
  int group_in = 0, group_out = 0;
  Axis down, right;
};

}  // namespace ridgeline::cuda
