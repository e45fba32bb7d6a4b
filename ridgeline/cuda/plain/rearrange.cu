#include "ridgeline/cuda/plain/accumulate.cuh"
#include "ridgeline/cuda/plain/index.cuh"
#include "ridgeline/cuda/plain/rearrange.h"

namespace ridgeline::cuda {
namespace {

template <typename T>
__global__ void pad_kernel(PadShape s, const T* x, T* y, int64_t count) {
  for (int64_t i = first_index(); i < count; i += index_stride()) {
    const int64_t row = i / s.out[2], image = row / s.out[1];
    const int64_t a = image % s.out[0] - s.before[0], b = row % s.out[1] - s.before[1];
    const int64_t c = i % s.out[2] - s.before[2];
    const bool inside = a >= 0 && a < s.in[0] && b >= 0 && b < s.in[1] && c >= 0 && c < s.in[2];
    y[i] = inside ? x[((image / s.out[0] * s.in[0] + a) * s.in[1] + b) * s.in[2] + c]
                  : T(Accumulated<T>(s.value));
  }
}

template <typename T>
__global__ void transpose_kernel(TransposeShape s, const T* x, T* y) {
  for (int64_t i = first_index(); i < s.n * s.sample; i += index_stride()) {
    int64_t rest = i % s.sample, from = i - rest;
    for (int a = s.axes; a-- > 0;) {
      from += rest % s.extent[a] * s.stride[a];
      rest /= s.extent[a];
    }
    y[i] = x[from];
  }
}

// The source of position i of the large image: `low` and `high`, with weight `part` for the latter.
struct Source {
  int64_t low, high;
  double part;
};

__device__ Source source(int64_t i, int64_t factor, int64_t extent, bool bilinear) {
  if (!bilinear) return {i / factor, i / factor, 0.0};
  double place = (double(i) + 0.5) / double(factor) - 0.5;
  if (place < 0) place = 0;
  const int64_t low = int64_t(place);
  return {low, low + 1 < extent ? low + 1 : extent - 1, place - double(low)};
}

// The weight of position `small` in a position of the large image.
template <typename A>
__device__ A weight_of(int64_t small, const Source& from) {
  A weight = A(0);
  if (from.low == small) weight += A(1 - from.part);
  if (from.high == small) weight += A(from.part);
  return weight;
}

template <typename T>
__global__ void upsample_kernel(UpsampleSize s, const T* x, T* y) {
  using A = Accumulated<T>;
  const int64_t wide = s.w * s.factor_w, high = s.h * s.factor_h;
  for (int64_t i = first_index(); i < s.images * high * wide; i += index_stride()) {
    const Source h = source(i / wide % high, s.factor_h, s.h, s.bilinear);
    const Source w = source(i % wide, s.factor_w, s.w, s.bilinear);
    const T* image = x + i / (high * wide) * s.h * s.w;
    if (!s.bilinear) {
      y[i] = image[h.low * s.w + w.low];
      continue;
    }
    const A right = A(w.part), left = A(1) - right, below = A(h.part);
    const A top = left * A(image[h.low * s.w + w.low]) + right * A(image[h.low * s.w + w.high]);
    const A bottom =
        left * A(image[h.high * s.w + w.low]) + right * A(image[h.high * s.w + w.high]);
    y[i] = T((A(1) - below) * top + below * bottom);
  }
}

template <typename T>
__global__ void upsample_grad_kernel(UpsampleSize s, const T* dy, T* dx) {
  using A = Accumulated<T>;
  const int64_t wide = s.w * s.factor_w, high = s.h * s.factor_h;
  // A bilinear neighbour reaches one position further on either side.
  const int64_t more = s.bilinear ? 1 : 0;
  for (int64_t i = first_index(); i < s.images * s.h * s.w; i += index_stride()) {
    const int64_t column = i % s.w, row = i / s.w % s.h;
    const T* image = dy + i / (s.h * s.w) * high * wide;
    const int64_t top = row > more ? (row - more) * s.factor_h : 0;
    const int64_t bottom = row + more < s.h ? (row + more + 1) * s.factor_h : high;
    const int64_t left = column > more ? (column - more) * s.factor_w : 0;
    const int64_t right = column + more < s.w ? (column + more + 1) * s.factor_w : wide;
    A sum = A(0);
    for (int64_t r = top; r < bottom; ++r) {
      const A share = weight_of<A>(row, source(r, s.factor_h, s.h, s.bilinear));
      if (share == A(0)) continue;
      for (int64_t c = left; c < right; ++c) {
        const A weight = weight_of<A>(column, source(c, s.factor_w, s.w, s.bilinear));
        sum += share * weight * A(image[r * wide + c]);
      }
    }
    dx[i] = T(sum);
  }
}

}  // namespace

template <typename T>
cudaError_t launch_pad(const PadShape& shape, const T* x, T* y, cudaStream_t stream) {
  const int64_t count = shape.n * shape.out[0] * shape.out[1] * shape.out[2];
  pad_kernel<T><<<blocks_for(count), kThreads, 0, stream>>>(shape, x, y, count);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_transpose(const TransposeShape& shape, const T* x, T* y, cudaStream_t stream) {
  transpose_kernel<T><<<blocks_for(shape.n * shape.sample), kThreads, 0, stream>>>(shape, x, y);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_upsample(const UpsampleSize& size, const T* x, T* y, cudaStream_t stream) {
  const int64_t count = size.images * size.h * size.factor_h * size.w * size.factor_w;
  upsample_kernel<T><<<blocks_for(count), kThreads, 0, stream>>>(size, x, y);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_upsample_grad(const UpsampleSize& size, const T* dy, T* dx,
                                 cudaStream_t stream) {
  const int64_t count = size.images * size.h * size.w;
  upsample_grad_kernel<T><<<blocks_for(count), kThreads, 0, stream>>>(size, dy, dx);
  return cudaGetLastError();
}

#define INSTANTIATE(T)                                                                         \
  template cudaError_t launch_pad<T>(const PadShape&, const T*, T*, cudaStream_t);             \
  template cudaError_t launch_transpose<T>(const TransposeShape&, const T*, T*, cudaStream_t); \
  template cudaError_t launch_upsample<T>(const UpsampleSize&, const T*, T*, cudaStream_t);    \
  template cudaError_t launch_upsample_grad<T>(const UpsampleSize&, const T*, T*, cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace ridgeline::cuda
