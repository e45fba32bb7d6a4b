#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

// Paddings, slices, transpositions and enlargements from ops/rearrange.h.
namespace ridgeline::cuda {

struct PadShape {
  int64_t n;
  int64_t in[3], out[3], before[3];
  double value;
};
template <typename T>
cudaError_t launch_pad(const PadShape& shape, const T* x, T* y, cudaStream_t stream);

// For each axis of y: its extent, and the stride of its elements in x.
struct TransposeShape {
  static constexpr int kAxes = 5;
  int axes;
  int64_t n, sample;  // samples, and values per sample
  int64_t extent[kAxes], stride[kAxes];
};
template <typename T>
cudaError_t launch_transpose(const TransposeShape& shape, const T* x, T* y, cudaStream_t stream);

struct UpsampleSize {
  int64_t images;  // samples times channels
  int64_t h, w;    // of the small image
  int64_t factor_h, factor_w;
  bool bilinear;
};
template <typename T>
cudaError_t launch_upsample(const UpsampleSize& size, const T* x, T* y, cudaStream_t stream);
// One thread sums each element of dx, in a fixed order.
template <typename T>
cudaError_t launch_upsample_grad(const UpsampleSize& size, const T* dy, T* dx, cudaStream_t stream);

}  // namespace ridgeline::cuda
