#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

// Ops on half-precision rows of channels [n, pixels, c], with c a multiple of eight.
namespace ridgeline::cuda {

// Windows that tile the images: h is a multiple of `down`, w of `right`.
struct TilePool {
  int64_t n = 0;
  int h = 0, w = 0, c = 0, down = 1, right = 1;

  constexpr int64_t windows() const { return n * (h / down) * (w / right); }
};

template <typename T>
cudaError_t launch_rows_pool(const TilePool& pool, const T* x, T* y, cudaStream_t stream);
// dx = dy at the first maximum of each window of x, 0 elsewhere
template <typename T>
cudaError_t launch_rows_pool_grad(const TilePool& pool, const T* x, const T* dy, T* dx,
                                  cudaStream_t stream);

constexpr int kMostSummed = 8;

template <typename T>
struct RunSumArgs {
  const T* xs[kMostSummed];
  int inputs = 0;
  double scale = 1;
  T* y = nullptr;
  T* active = nullptr;  // relu(y), or null if not wanted; y itself need not be stored
  int64_t count = 0;    // a multiple of eight
};

// y = scale * (xs[0] + xs[1] + ...), added in fp32 in this order
template <typename T>
cudaError_t launch_run_sum(const RunSumArgs<T>& args, cudaStream_t stream);
// y = relu(x);  dx = dy where y > 0, else 0
template <typename T>
cudaError_t launch_run_relu(const T* x, T* y, int64_t count, cudaStream_t stream);
template <typename T>
cudaError_t launch_run_relu_grad(const T* y, const T* dy, T* dx, int64_t count,
                                 cudaStream_t stream);

// The window of a convolution over images stored as rows of channels.
struct RowTaps {
  int64_t n = 0;
  int h = 0, w = 0, c = 0, out_h = 0, out_w = 0, down = 1, right = 1;
  int stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, dilation_h = 1, dilation_w = 1;
};

// columns[pixel, tap, c] = x at that tap, 0 on the padding
template <typename T>
cudaError_t launch_row_taps(const RowTaps& taps, const T* x, T* columns, cudaStream_t stream);

// Converts filters [k, c, taps] to [k, taps, c], and back.
template <typename T>
cudaError_t launch_filters_last(const T* from, T* to, int k, int c, int taps, cudaStream_t stream);
template <typename T>
cudaError_t launch_filters_first(const T* from, T* to, int k, int c, int taps, cudaStream_t stream);

}  // namespace ridgeline::cuda
