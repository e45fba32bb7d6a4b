#include <algorithm>

#include "ridgeline/cuda/conv/direct.h"
#include "ridgeline/cuda/conv/nan_max.cuh"
#include "ridgeline/cuda/conv/source.cuh"
#include "ridgeline/cuda/conv/staging.cuh"
#include "ridgeline/cuda/device/cluster.cuh"
#include "ridgeline/cuda/plain/activation.cuh"

namespace ridgeline::cuda {
namespace {

// 12 warps are three per scheduler of an SM. A 12 -> 24 layer on 33 x 33 images has 13 x 7 strips
// and 4 groups of channels, which is work for 12 warps; a 1 -> 12 layer on 72 x 72 images has work
// for 36.
constexpr int kWarps = 12, kThreads = kWarps * 32;

// A strip is two adjacent pooling windows: 2 rows x 4 columns of outputs.
constexpr int kColumns = 4;

// The image in shared memory: [c][rows][pitch], with zeros on the padding.
struct Staged {
  int rows, pitch, strips_x, strips, groups, group;  // group: channels per thread (4, 6 or 8)

  size_t image_bytes(int c) const { return size_t(c) * rows * pitch * 4; }
  // The filters are [c][u][v][groups][padded group].
  __host__ __device__ int padded() const { return group == 6 ? 8 : group; }
};

int group_of(int k) { return k % 12 == 0 ? 6 : k % 8 == 0 ? 8 : k % 6 == 0 ? 6 : 4; }

Staged staged(const DirectShape& shape) {
  Staged s;
  s.group = group_of(shape.k);
  s.groups = (shape.k + s.group - 1) / s.group;
  s.strips_x = (shape.pooled_w() + 1) / 2;
  s.strips = s.strips_x * shape.pooled_h();
  s.rows = std::max(shape.h + 2 * shape.pad, 2 * shape.pooled_h() + shape.filter - 1);
  const int reach = s.strips_x * kColumns + shape.filter - 1;
  s.pitch = (std::max(shape.w + 2 * shape.pad, reach) + 3) / 4 * 4;
  return s;
}

size_t filter_bytes(const DirectShape& shape) {
  const Staged s = staged(shape);
  return size_t(shape.c) * shape.filter * shape.filter * s.groups * s.padded() * 4;
}

// Holds two images, so that one is fetched while the other is used; or one image and the raw bytes
// of the next.
size_t shared_bytes(const DirectShape& shape, bool from_bytes) {
  const size_t image = staged(shape).image_bytes(shape.c);
  const size_t raw = (size_t(shape.c) * shape.h * shape.w + 15) / 16 * 16;
  return filter_bytes(shape) + image + (from_bytes ? raw : image);
}

__device__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Calls f(offset in the image, offset in shared memory) for this thread's share of an image.
template <typename F>
__device__ void for_pixels(const DirectShape& shape, const Staged& s, F f) {
  // (c, row, column) advances by the number of threads in the block, without a division.
  int column = threadIdx.x % shape.w, row = threadIdx.x / shape.w;
  const int column_step = kThreads % shape.w, row_step = kThreads / shape.w;
  int c = row / shape.h;
  row %= shape.h;
  for (int at = threadIdx.x; at < shape.c * shape.h * shape.w; at += kThreads) {
    f(at, (c * s.rows + row + shape.pad) * s.pitch + column + shape.pad);
    column += column_step;
    row += row_step;
    if (column >= shape.w) column -= shape.w, ++row;
    while (row >= shape.h) row -= shape.h, ++c;
  }
}

// Starts to fetch image i: its values to their places, or its raw bytes. The padding has been
// zeroed before and stays zero.
__device__ void fetch(const DirectArgs& args, const Staged& s, int64_t i, float* image,
                      uint8_t* raw) {
  const int numel = args.shape.c * args.shape.h * args.shape.w;
  if (args.source.set == nullptr) {
    const float* x = static_cast<const float*>(args.source.x) + i * numel;
    for_pixels(args.shape, s, [&](int at, int to) { copy_async_4(image + to, x + at); });
    return;
  }
  const uint8_t* set = bytes_of(args.source, i, numel);
  const bool by_fours = numel % 4 == 0 && reinterpret_cast<uintptr_t>(set) % 4 == 0;
  if (by_fours) {
    for (int at = threadIdx.x; at < numel / 4; at += kThreads) {
      copy_async_4(reinterpret_cast<float*>(raw) + at, reinterpret_cast<const float*>(set) + at);
    }
  } else {
    for (int at = threadIdx.x; at < numel; at += kThreads) raw[at] = set[at];
  }
}

// Stores 2 x 2 pixels of a map with `width` columns, of which `left` remain from here on.
template <typename Value>
__device__ void store_pixels(float* to, int width, int left, Value value) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int p = 0; p < 2; ++p) {
      const float v = value(r, p);
      if (p < left) to[int64_t(r) * width + p] = v;
    }
  }
}

// kGroup: channels per thread.
template <int kFilter, int kGroup>
__global__ void __launch_bounds__(kThreads) conv_pool_direct_kernel(DirectArgs args, Staged s) {
  constexpr int kPadded = kGroup == 6 ? 8 : kGroup;
  constexpr int kInputs = (kColumns + kFilter - 1 + 3) / 4 * 4;  // rounded up to loads of four
  extern __shared__ __align__(16) float memory[];
  const DirectShape& shape = args.shape;
  const int weights = shape.c * kFilter * kFilter * s.groups * kPadded;
  const int image_size = shape.c * s.rows * s.pitch;
  const bool bytes = args.source.set != nullptr;
  float *filters = memory, *image = memory + weights, *next = image + image_size;
  for (int i = threadIdx.x; i < weights; i += kThreads) {
    const int in_group = i % kPadded, o = i / kPadded % s.groups * kGroup + in_group;
    const int tap = i / kPadded / s.groups;  // (c, u, v)
    const bool inside = in_group < kGroup && o < shape.k;
    filters[i] = inside ? args.w[o * shape.c * kFilter * kFilter + tap] : 0.0f;
  }
  for (int i = threadIdx.x; i < (bytes ? 1 : 2) * image_size; i += kThreads) image[i] = 0.0f;
  const int pooled_h = shape.pooled_h(), pooled_w = shape.pooled_w();
  const int out_h = shape.out_h(), out_w = shape.out_w();
  const int chunks = (s.strips + 31) / 32;  // all strips of a warp have the same channels

  auto* raw = reinterpret_cast<uint8_t*>(next);
  __syncthreads();
  fetch(args, s, blockIdx.x, bytes ? image : next, raw);
  for (int64_t i = blockIdx.x; i < args.source.n; i += gridDim.x) {
    wait_for_copies();
    __syncthreads();  // the copies have arrived, and all threads are done with the previous image
    if (bytes) {
      for_pixels(shape, s, [&](int at, int to) {
        image[to] = fmaf(float(raw[at]), args.source.scale, args.source.shift);
      });
      __syncthreads();
    } else {
      float* fetched = next;
      next = image;
      image = fetched;
    }
    if (i + gridDim.x < args.source.n) fetch(args, s, i + gridDim.x, next, raw);
#pragma unroll 1
    for (int work = threadIdx.x / 32; work < chunks * s.groups; work += kWarps) {
      const int group = work / chunks, strip = work % chunks * 32 + threadIdx.x % 32;
      const int y = min(strip / s.strips_x, pooled_h - 1), x = strip % s.strips_x;
      float acc[2][kColumns][kGroup] = {};
      const float* row = image + 2 * y * s.pitch + x * kColumns;
      const float* filter = filters + group * kPadded;
      const int filter_step = s.groups * kPadded;
#pragma unroll 1
      for (int c = 0; c < shape.c; ++c, row += (s.rows - kFilter) * s.pitch) {
#pragma unroll 1
        for (int u = 0; u < kFilter; ++u, row += s.pitch) {
          float in[2][kInputs];
#pragma unroll
          for (int j = 0; j < kInputs; j += 4) {
            *reinterpret_cast<float4*>(&in[0][j]) = *reinterpret_cast<const float4*>(row + j);
            *reinterpret_cast<float4*>(&in[1][j]) =
                *reinterpret_cast<const float4*>(row + s.pitch + j);
          }
#pragma unroll
          for (int v = 0; v < kFilter; ++v, filter += filter_step) {
            float w[kPadded];
#pragma unroll
            for (int o = 0; o < kPadded; o += 4) {
              *reinterpret_cast<float4*>(&w[o]) = *reinterpret_cast<const float4*>(filter + o);
            }
#pragma unroll
            for (int o = 0; o < kGroup; ++o) {
#pragma unroll
              for (int p = 0; p < kColumns; ++p) {
                acc[0][p][o] = fmaf(in[0][p + v], w[o], acc[0][p][o]);
                acc[1][p][o] = fmaf(in[1][p + v], w[o], acc[1][p][o]);
              }
            }
          }
        }
      }
      if (strip >= s.strips) continue;
#pragma unroll
      for (int o = 0; o < kGroup; ++o) {
        const int channel = group * kGroup + o;
        if (channel >= shape.k) break;
        const float bias = args.b != nullptr ? args.b[channel] : 0.0f;
        float* to = args.y + ((i * shape.k + channel) * pooled_h + y) * pooled_w + 2 * x;
        float* whole = args.a == nullptr
                           ? nullptr
                           : args.a + ((i * shape.k + channel) * out_h + 2 * y) * out_w + 4 * x;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float(&upper)[kColumns][kGroup] = acc[0], (&lower)[kColumns][kGroup] = acc[1];
          if (whole != nullptr) {
            store_pixels(whole + 2 * e, out_w, out_w - 4 * x - 2 * e, [&](int r, int p) {
              float& value = acc[r][2 * e + p][o];
              return value = activation_value(args.activation, value + bias);
            });
          }
          const float most = nan_max(nan_max(upper[2 * e][o], upper[2 * e + 1][o]),
                                     nan_max(lower[2 * e][o], lower[2 * e + 1][o]));
          if (2 * x + e >= pooled_w) continue;
          to[e] = whole != nullptr ? most : activation_value(args.activation, most + bias);
        }
      }
    }
  }
}

template <int kFilter, int kGroup>
cudaError_t launch(const DirectArgs& args, int sms, cudaStream_t stream) {
  const auto kernel = conv_pool_direct_kernel<kFilter, kGroup>;
  const Staged s = staged(args.shape);
  const size_t bytes = shared_bytes(args.shape, args.source.set != nullptr);
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
  if (error != cudaSuccess) return error;
  const auto blocks = unsigned(std::min<int64_t>(args.source.n, sms));
  kernel<<<blocks, kThreads, bytes, stream>>>(args, s);
  return cudaGetLastError();
}

template <int kFilter>
cudaError_t launch(const DirectArgs& args, int sms, cudaStream_t stream) {
  switch (group_of(args.shape.k)) {
    case 8:
      return launch<kFilter, 8>(args, sms, stream);
    case 6:
      return launch<kFilter, 6>(args, sms, stream);
    default:
      return launch<kFilter, 4>(args, sms, stream);
  }
}

}  // namespace

const char* refuse_direct(const DirectShape& shape, bool from_bytes, size_t shared_memory) {
  if (shape.filter != 3 && shape.filter != 5 && shape.filter != 7) {
    return "takes square filters of 3, 5 and 7";
  }
  if (shape.pooled_h() < 1 || shape.pooled_w() < 1) return "the pool has no whole window";
  if (shared_bytes(shape, from_bytes) > shared_memory)
    return "image and filters do not fit in shared memory";
  return "";
}

cudaError_t launch_conv_pool_direct(const DirectArgs& args, int sms, cudaStream_t stream) {
  switch (args.shape.filter) {
    case 3:
      return launch<3>(args, sms, stream);
    case 5:
      return launch<5>(args, sms, stream);
    default:
      return launch<7>(args, sms, stream);
  }
}

}  // namespace ridgeline::cuda
