#pragma once

#include <cuda_runtime_api.h>

#include "ridgeline/cuda/activation.h"
#include "ridgeline/cuda/conv/source.h"

// Convolution, bias, activation and a 2 x 2 max pool in fp32 multiply-adds. The image and the
// filters are in shared memory, and a thread keeps the sums of 2 x 4 pixels by a few channels in
// registers. Takes stride 1, no dilation, one group, square filters of 3, 5 or 7, and any padding.
namespace ridgeline::cuda {

struct DirectShape {
  int c = 0, h = 0, w = 0, k = 0, filter = 0, pad = 0;

  constexpr int out_h() const { return h + 2 * pad - filter + 1; }
  constexpr int out_w() const { return w + 2 * pad - filter + 1; }
  constexpr int pooled_h() const { return out_h() / 2; }
  constexpr int pooled_w() const { return out_w() / 2; }
};

// Why the kernel does not take this shape with this much shared memory per block; "" if it does.
const char* refuse_direct(const DirectShape& shape, bool from_bytes, size_t shared_memory);

// Writes y[n, k, pooled_h, pooled_w] and, if `a` is given, the input of the pool a[n, k, out, out].
// b may be null. Without `a` the activation is applied after the maximum and must be
// non-decreasing.
struct DirectArgs {
  DirectShape shape;
  ImageSource source;
  const float *w = nullptr, *b = nullptr;
  float *y = nullptr, *a = nullptr;
  ActivationFn activation = ActivationFn::none;
};

cudaError_t launch_conv_pool_direct(const DirectArgs& args, int sms, cudaStream_t stream);

}  // namespace ridgeline::cuda
