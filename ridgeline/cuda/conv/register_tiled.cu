#include <algorithm>

#include "ridgeline/cuda/conv/nan_max.cuh"
#include "ridgeline/cuda/conv/register_tiled.h"
#include "ridgeline/cuda/conv/staging.cuh"
#include "ridgeline/cuda/conv/window_store.cuh"
#include "ridgeline/cuda/device/async_copy.cuh"
#include "ridgeline/cuda/plain/activation.cuh"

namespace ridgeline::cuda {

RegisterTiledShape::RegisterTiledShape(const ImplicitShape& shape, size_t shared_memory) {
  const int out_h = shape.out_h(), out_w = shape.out_w();
  const int all = (shape.k + kStripOutputs - 1) / kStripOutputs;
  strips = (out_w + kStripPixels - 1) / kStripPixels;
  items = outputs = blocks = splits = each = pitch = plane = filters = shared = 0;
  // The groups of channels that fit in a block.
  const int most = std::min(kStripThreads / (out_h * strips), kStripMost / kStripOutputs);
  if (most == 0) return;
  blocks = (all + most - 1) / most;
  const int groups = (all + blocks - 1) / blocks;
  items = groups * out_h * strips;
  outputs = groups * kStripOutputs;
  splits = std::clamp(kStripThreads / items, 1, std::min(shape.c, 8));
  each = (shape.c + splits - 1) / splits;
  pitch = std::max(shape.columns(), strips * kStripPixels + shape.filter - 1);
  while (pitch % 4 != 2) ++pitch;  // puts pairs of pixels of a column in different banks
  plane = (shape.rows() * pitch + 3) / 4 * 4;
  filters = shape.filter * shape.filter * outputs;
  const int64_t staged = int64_t(shape.c) * plane + int64_t(kStripStages) * splits * filters;
  const int64_t sums = int64_t(splits) * outputs * out_h * out_w;
  const int64_t bytes = std::max(staged, sums) * 4;
  // kStripMost * 4: the biases
  if (bytes + kStripMost * 4 <= int64_t(shared_memory)) shared = int(bytes);
}

const char* refuse_conv2d_register_tiled(const ImplicitShape& shape, size_t shared_memory) {
  if (shape.filter != 3 && shape.filter != 5 && shape.filter != 7) {
    return "takes square filters of 3, 5 and 7";
  }
  if (shape.pad < 0 || shape.pad >= shape.filter) return "takes padding smaller than the filter";
  if (shape.out_h() < 1 || shape.out_w() < 1) return "there are no outputs";
  const RegisterTiledShape s(shape, shared_memory);
  if (s.items == 0) return "has fewer threads than strips of pixels";
  return s.shared > 0 ? "" : "image and filters do not fit in shared memory";
}

size_t conv2d_register_tiled_workspace(const ImplicitShape& shape, size_t shared_memory) {
  const RegisterTiledShape s(shape, shared_memory);
  return size_t(s.blocks) * size_t(shape.c) * size_t(s.filters) * 4;
}

namespace {

// packed_filters[block][channel][tap][output], with zeros past the last output.
__global__ void __launch_bounds__(256)
    conv2d_register_tiled_pack_filters_kernel(ImplicitShape shape, RegisterTiledShape s,
                                              const float* w, bool flipped, float* packed_filters) {
  const int taps = shape.filter * shape.filter, count = s.blocks * shape.c * s.filters;
  for (int at = blockIdx.x * 256 + threadIdx.x; at < count; at += gridDim.x * 256) {
    const int tap = at / s.outputs % taps, c = at / s.filters % shape.c;
    const int o = at / s.filters / shape.c * s.outputs + at % s.outputs;
    const int64_t plane = flipped ? int64_t(c) * shape.k + o : int64_t(o) * shape.c + c;
    packed_filters[at] = o < shape.k ? w[plane * taps + (flipped ? taps - 1 - tap : tap)] : 0.0f;
  }
}

// Copies a block's image, [channel][row][pitch], with its padding, as one group of asynchronous
// copies.
__device__ void stage_strips(const ImplicitShape& shape, const RegisterTiledShape& s,
                             const float* x, float* to) {
  for (int at = threadIdx.x; at < shape.c * s.plane; at += kStripThreads) to[at] = 0.0f;
  __syncthreads();
  const int area = shape.h * shape.w;
  for (int at = threadIdx.x; at < shape.c * area; at += kStripThreads) {
    const int c = at / area, pixel = at % area, y = pixel / shape.w, column = pixel % shape.w;
    copy_async_4(to + c * s.plane + (y + shape.pad) * s.pitch + column + shape.pad, x + at);
  }
}

// Adds one channel to a thread's sums.
template <int kFilter>
__device__ __forceinline__ void add_channel(float (&acc)[kStripOutputs][kStripPixels],
                                            const float* x, const float* filters, int pitch,
                                            int outputs) {
#pragma unroll 1
  for (int u = 0; u < kFilter; ++u) {
    float pixels[kStripPixels + kFilter - 1];
#pragma unroll
    for (int p = 0; p < kStripPixels + kFilter - 1; p += 2) {
      const float2 two = *reinterpret_cast<const float2*>(x + p);
      pixels[p] = two.x, pixels[p + 1] = two.y;
    }
#pragma unroll
    for (int v = 0; v < kFilter; ++v) {
      const float4 w = *reinterpret_cast<const float4*>(filters + v * outputs);
#pragma unroll
      for (int p = 0; p < kStripPixels; ++p) {
        acc[0][p] = fmaf(w.x, pixels[p + v], acc[0][p]);
        acc[1][p] = fmaf(w.y, pixels[p + v], acc[1][p]);
        acc[2][p] = fmaf(w.z, pixels[p + v], acc[2][p]);
        acc[3][p] = fmaf(w.w, pixels[p + v], acc[3][p]);
      }
    }
    x += pitch, filters += kFilter * outputs;
  }
}

// Writes a block's sums [split][output][pixel] to y: adds the splits in order, and the bias.
__device__ void store_strips(const BlockOutput<float>& out, const RegisterTiledShape& s,
                             const float* sums) {
  const int area = out.shape.out_h() * out.shape.out_w();
  for (int at = threadIdx.x; at < out.count * area; at += kStripThreads) {
    float sum = sums[at];
    for (int split = 1; split < s.splits; ++split) sum += sums[split * s.outputs * area + at];
    out.y[out.plane(0) * area + at] = sum + out.biases[at / area];
  }
}

// Stores the results of a 2 x 2 pool over the sums.
__device__ void store_strip_windows(const BlockOutput<float>& out, const PooledOutput<float>& pool,
                                    const RegisterTiledShape& s, const float* sums) {
  const int w = out.shape.out_w(), area = out.shape.out_h() * w, columns = w / 2;
  const int windows = out.shape.out_h() / 2 * columns;
  for (int at = threadIdx.x; at < out.count * windows; at += kStripThreads) {
    const int o = at / windows, window = at % windows;
    const int corner = o * area + window / columns * 2 * w + window % columns * 2;
    float quad[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int pixel = corner + e / 2 * w + e % 2;
      float sum = sums[pixel];
      for (int split = 1; split < s.splits; ++split) sum += sums[split * s.outputs * area + pixel];
      quad[e] = sum + out.biases[o];
    }
    float most = nan_max(nan_max(quad[0], quad[1]), nan_max(quad[2], quad[3]));
    if (pool.a == nullptr) {
      most = activation_value(pool.activation, most);
    } else {
#pragma unroll
      for (int e = 0; e < 4; ++e) quad[e] = activation_value(pool.activation, quad[e]);
      auto* a = reinterpret_cast<float2*>(pool.a + out.plane(0) * area + corner);
      // Extents are even if this is wanted.
      a[0] = {quad[0], quad[1]}, a[w / 2] = {quad[2], quad[3]};
      most = nan_max(nan_max(quad[0], quad[1]), nan_max(quad[2], quad[3]));
    }
    out.y[out.plane(0) * windows + at] = most;
  }
}

template <int kFilter>
__global__ void __launch_bounds__(kStripThreads, 1)
    conv2d_register_tiled_kernel(ImplicitArgs<float> args, PooledOutput<float> pool,
                                 RegisterTiledShape s, const float* packed_filters) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(16) float memory[];
  __shared__ float biases[kStripMost];
  const ImplicitShape& shape = args.shape;
  float *image = memory, *ring = memory + shape.c * s.plane;
  const int64_t i = blockIdx.x;
  const int o0 = blockIdx.y * s.outputs, count = min(s.outputs, shape.k - o0);
  packed_filters += int64_t(blockIdx.y) * shape.c * s.filters;
  const auto fetch = [&](int j) {  // commits a group of copies even past the last channel
    const int chunks = s.filters / 4;
    float* to = ring + j % kStripStages * s.splits * s.filters;
    for (int at = threadIdx.x; j < s.each && at < s.splits * chunks; at += kStripThreads) {
      const int c = at / chunks * s.each + j;
      if (c < shape.c) copy_async_16(to + at * 4, packed_filters + c * s.filters + at % chunks * 4);
    }
    copy_async_commit();
  };
  stage_biases<kStripMost>(args.b, o0, o0 + count, biases);
  stage_strips(shape, s, args.x + i * shape.c * shape.h * shape.w, image);
  fetch(0), fetch(1);

  const int out_h = shape.out_h(), out_w = shape.out_w();
  const int split = int(threadIdx.x) / s.items, item = int(threadIdx.x) % s.items;
  const int row = item % out_h, strip = item / out_h % s.strips, group = item / out_h / s.strips;
  const int first = split * s.each, last = min(shape.c, first + s.each);
  const float* x = image + first * s.plane + row * s.pitch + strip * kStripPixels;
  float acc[kStripOutputs][kStripPixels] = {};
#pragma unroll 1
  for (int j = 0; j < s.each; ++j) {
    copy_async_wait<1>();
    __syncthreads();  // channel j has arrived, and all threads are done with channel j - 1
    fetch(j + 2);
    if (split < s.splits && first + j < last) {
      const float* filters = ring + (j % kStripStages * s.splits + split) * s.filters;
      add_channel<kFilter>(acc, x + j * s.plane, filters + group * kStripOutputs, s.pitch,
                           s.outputs);
    }
  }
  copy_async_wait<0>();
  __syncthreads();  // all threads are done with the memory that the sums overwrite
  if (split < s.splits) {
    float* to = memory + ((split * s.outputs + group * kStripOutputs) * out_h + row) * out_w +
                strip * kStripPixels;
#pragma unroll
    for (int o = 0; o < kStripOutputs; ++o) {
#pragma unroll
      for (int p = 0; p < kStripPixels; ++p) {
        if (strip * kStripPixels + p < out_w) to[o * out_h * out_w + p] = acc[o][p];
      }
    }
  }
  __syncthreads();
  const BlockOutput<float> out{shape, biases, args.y, i, o0, count};
  if (pool.pooled) {
    store_strip_windows(out, pool, s, memory);
  } else {
    store_strips(out, s, memory);
  }
#endif
}

}  // namespace

cudaError_t launch_conv2d_register_tiled_pack_filters(const ImplicitArgs<float>& args,
                                                      size_t shared_memory, float* packed_filters,
                                                      cudaStream_t stream) {
  conv2d_register_tiled_pack_filters_kernel<<<64, 256, 0, stream>>>(
      args.shape, RegisterTiledShape(args.shape, shared_memory), args.w, args.flipped,
      packed_filters);
  return cudaGetLastError();
}

cudaError_t launch_conv2d_register_tiled(const ImplicitArgs<float>& args,
                                         const PooledOutput<float>& pool, size_t shared_memory,
                                         const float* packed_filters, cudaStream_t stream) {
  const RegisterTiledShape s(args.shape, shared_memory);
  const auto kernel = args.shape.filter == 3   ? conv2d_register_tiled_kernel<3>
                      : args.shape.filter == 5 ? conv2d_register_tiled_kernel<5>
                                               : conv2d_register_tiled_kernel<7>;
  const cudaError_t error = allow_shared(kernel, s.shared);
  if (error != cudaSuccess) return error;
  const dim3 grid(unsigned(args.shape.n), unsigned(s.blocks));
  kernel<<<grid, kStripThreads, size_t(s.shared), stream>>>(args, pool, s, packed_filters);
  return cudaGetLastError();
}

}  // namespace ridgeline::cuda
