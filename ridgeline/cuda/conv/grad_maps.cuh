#pragma once

// Makes the operands of a convolution's gradients once: both maps channels-last, the output's
// gradient taken back through pool and activation, and the flipped filters. Because all of the
// gradient passes through here, this also makes each image's sums for the bias.

#include "ridgeline/cuda/conv/grad_maps.h"
#include "ridgeline/cuda/conv/implicit.cuh"

namespace ridgeline::cuda {

template <typename T>
struct GradMapsArgs {
  ImplicitShape shape;
  const T* x;
  OutputGrad<T> dy;  // dy.dy null: only x is converted
  const T* w;        // null: the filters are not packed
  T *dz, *x_map;
  uint32_t* packed_filters;
  float* bias;  // [n, maps.parts, maps.k]
};

// The channels of a chunk: the first, and how many of them exist in its group.
struct ChunkChannels {
  int first, count;

  __device__ ChunkChannels(int chunk, int size, int channels, int padded) {
    const int chunks = padded / size, at = chunk % chunks * size;  // within its group
    first = chunk / chunks * channels + at, count = min(size, channels - at);
  }
};

// A warp converts a chunk of channels of one part of an image of dz.
template <typename T>
class OutputChunk {
 public:
  static constexpr int kCount = MapChunk<T>::kCount;

  __device__ OutputChunk(const GradMapsArgs<T>& args, int64_t image, int chunk, int part)
      : args_(args),
        maps_(args.shape, sizeof(T)),
        h_(args.shape.out_h()),
        w_(args.shape.out_w()),
        channels_(chunk, kCount, args.shape.group_k(), maps_.group_k),
        plane_(image * args.shape.k + channels_.first),
        here_(channels_.count),
        first_(part * 32 + int(threadIdx.x) % 32),
        step_(32 * maps_.parts),
        to_(args.dz + image * h_ * w_ * maps_.k + chunk * kCount) {}

  // dy without a pool.
  __device__ void plain() {
    const T* dy = args_.dy.dy + plane_ * h_ * w_;
    for (int pixel = first_; pixel < h_ * w_; pixel += step_) {
      T values[kCount];
#pragma unroll
      for (int e = 0; e < kCount; ++e) values[e] = dy[channel(e) * h_ * w_ + pixel];
      put(pixel, [&](int e) { return values[e]; });
#pragma unroll
      for (int e = 0; e < kCount; ++e) sums_[e] += float(values[e]);
    }
  }
  // dy through a pool: each lane takes a window. kEven: rows start at even offsets.
  template <bool kEven>
  __device__ void pooled() {
    const int columns = w_ / 2, windows = h_ / 2 * columns;
    const T *dy = args_.dy.dy + plane_ * windows, *a = args_.dy.a + plane_ * h_ * w_;
    for (int window = first_; window < windows; window += step_) {
      const int corner = window / columns * 2 * w_ + window % columns * 2;
      T quads[kCount][4], slopes[kCount];
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        load_quad<kEven>(a + channel(e) * h_ * w_ + corner, w_, quads[e]);
        slopes[e] = dy[channel(e) * windows + window];
      }
      int best[kCount];
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        const QuadGrad<T> grad(quads[e], slopes[e], args_.dy.activation);
        best[e] = grad.best, slopes[e] = grad.slope;
        sums_[e] += float(grad.slope);
      }
#pragma unroll
      for (int at = 0; at < 4; ++at) {
        put(corner + at / 2 * w_ + at % 2,
            [&](int e) { return best[e] == at ? slopes[e] : T(0.0f); });
      }
    }
    // Pixels that the pool left out.
    const auto none = [](int) { return T(0.0f); };
    for (int at = first_; at < (h_ % 2) * w_; at += step_) put((h_ - 1) * w_ + at, none);
    for (int at = first_; at < (w_ % 2) * h_; at += step_) put(at * w_ + w_ - 1, none);
  }
  // Stores the part's sums to bias[image, part, chunk].
  __device__ void put_sums_of(float* bias) {
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
#pragma unroll
      for (int off = 16; off > 0; off /= 2) sums_[e] += __shfl_xor_sync(~0u, sums_[e], off);
      if (threadIdx.x % 32 == 0) bias[e] = e < here_ ? sums_[e] : 0.0f;
    }
  }

 private:
  // A valid channel, even past the last one, so that all loads can be issued at once.
  __device__ int channel(int e) const { return min(e, here_ - 1); }
  template <typename F>
  __device__ void put(int pixel, F value) const {
    MapChunk<T> chunk;
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      chunk.values[e] = e < here_ ? Factor<T>::round(float(value(e))) : T(0.0f);
    }
    *reinterpret_cast<MapChunk<T>*>(to_ + int64_t(pixel) * maps_.k) = chunk;
  }

  const GradMapsArgs<T>& args_;
  const GradMaps maps_;
  const int h_, w_;
  const ChunkChannels channels_;
  const int64_t plane_;
  const int here_;
  const int first_, step_;  // the positions this lane takes
  T* const to_;
  float sums_[kCount] = {};
};

// A warp converts a chunk of channels of one part of an image of x, with its padding.
template <typename T>
__device__ void input_chunk(const GradMapsArgs<T>& args, int64_t image, int chunk, int part) {
  constexpr int kCount = MapChunk<T>::kCount;
  const ImplicitShape& shape = args.shape;
  const GradMaps maps(shape, sizeof(T));
  const ChunkChannels channels(chunk, kCount, shape.group_c(), maps.group_c);
  const int here = channels.count, area = shape.h * shape.w;
  const T* x = args.x + (image * shape.c + channels.first) * area;
  T* to = args.x_map + image * maps.rows * maps.columns * maps.c + chunk * kCount;
#pragma unroll 4
  for (int pixel = part * 32 + threadIdx.x % 32; pixel < maps.rows * maps.columns;
       pixel += 32 * maps.parts) {
    const int y = pixel / maps.columns - shape.pad, column = pixel % maps.columns - shape.pad;
    const bool inside = y >= 0 && y < shape.h && column >= 0 && column < shape.w;
    const T* from = x + (inside ? y * shape.w + column : 0);
    MapChunk<T> values;
#pragma unroll
    for (int e = 0; e < kCount; ++e) values.values[e] = from[min(e, here - 1) * area];
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      const T value = values.values[e];
      values.values[e] = inside && e < here ? Factor<T>::round(float(value)) : T(0.0f);
    }
    *reinterpret_cast<MapChunk<T>*>(to + int64_t(pixel) * maps.c) = values;
  }
}

constexpr int kMapsThreads = 128, kMapsWarps = kMapsThreads / 32, kWordBlocks = 192;

// A warp takes a chunk of a part of an image: the first warps take dz, the next x, and the last
// blocks pack the filters.
template <typename T>
__global__ void __launch_bounds__(kMapsThreads) conv2d_grad_maps_kernel(GradMapsArgs<T> args) {
#if __CUDA_ARCH__ >= 800
  constexpr int kCount = MapChunk<T>::kCount;
  const ImplicitShape& shape = args.shape;
  const GradMaps maps(shape, sizeof(T));
  const int outputs = args.dy.dy != nullptr ? maps.k / kCount : 0, inputs = maps.c / kCount;
  const int64_t image_parts = int64_t(shape.n) * maps.parts;
  const int64_t dz = image_parts * outputs, all = dz + image_parts * inputs;
  const int64_t chunk_blocks = (all + kMapsWarps - 1) / kMapsWarps;
  if (blockIdx.x >= chunk_blocks) {
    const int thread = int(blockIdx.x - chunk_blocks) * kMapsThreads + int(threadIdx.x);
    arrange_weights(shape.flipped(), args.w, true, args.packed_filters, thread,
                    kWordBlocks * kMapsThreads);
    return;
  }
  const int64_t item = int64_t(blockIdx.x) * kMapsWarps + threadIdx.x / 32;
  if (item >= all) return;
  const int of = item < dz ? outputs : inputs;
  const int64_t image_part = (item < dz ? item : item - dz) / of, image = image_part / maps.parts;
  const int chunk = int((item < dz ? item : item - dz) % of), part = int(image_part % maps.parts);
  if (item >= dz) return input_chunk(args, image, chunk, part);
  OutputChunk<T> output(args, image, chunk, part);
  if (args.dy.a == nullptr) {
    output.plain();
  } else if (shape.out_w() % 2 == 0) {
    output.template pooled<true>();
  } else {
    output.template pooled<false>();
  }
  output.put_sums_of(args.bias + image_part * maps.k + chunk * kCount);
#endif
}

template <typename T>
cudaError_t launch_grad_maps(const GradMapsArgs<T>& args, cudaStream_t stream) {
  constexpr int kCount = MapChunk<T>::kCount;
  const GradMaps maps(args.shape, sizeof(T));
  const int channels = (args.dy.dy != nullptr ? maps.k : 0) + maps.c;
  const int64_t warps = int64_t(args.shape.n) * maps.parts * (channels / kCount);
  const auto blocks = unsigned((warps + kMapsWarps - 1) / kMapsWarps);
  const unsigned more = args.w != nullptr ? kWordBlocks : 0;
  conv2d_grad_maps_kernel<T><<<blocks + more, kMapsThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace ridgeline::cuda
