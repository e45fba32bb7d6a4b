#pragma once

// dw by wgmma over the pixels of the batch: rows are 64 output channels, and columns are 32 input
// channels at each tap of a row of the filter. Pixels follow each other along the padded rows of
// the image, so the columns of successive taps are the same memory, each a pixel further, and one
// descriptor covers them all. dz is zero where a padded row has more pixels than the output. Both
// maps are stored in global memory in their shared-memory layout, so that TMA loads an image in two
// copies.

#include "ridgeline/cuda/conv/wgmma.cuh"
#include "ridgeline/cuda/device/wgmma_taps.cuh"

namespace ridgeline::cuda {

constexpr int kTapGroups = 2, kTapThreads = kTapGroups * 128;
constexpr int kTapOutputs = 64, kTapChannels = 32;                 // per block
constexpr int kTapDz = kTapOutputs * 2, kTapX = kTapChannels * 2;  // bytes per pixel
constexpr int kTapHead = 1024;                                     // bytes of barriers

// Converts x[n, c, h, w] to map[n, block of 32 channels, pixels along rows of `columns`, channel],
// padded.
template <typename T>
__global__ void __launch_bounds__(256)
    conv2d_stream_x_kernel(ImplicitShape shape, StreamShape s, const T* x, std::byte* map) {
#if __CUDA_ARCH__ >= 900
  constexpr int kCount = ConvChunk<T>::kCount, kChunks = kTapX / 16;
  const int pixels = s.x_map / kTapX, columns = s.dx.columns, area = shape.h * shape.w;
  const int block = blockIdx.y % s.channel_blocks;
  const int64_t image = blockIdx.y / s.channel_blocks;
  const int item = blockIdx.x * 256 + threadIdx.x;
  if (item >= pixels * kChunks) return;
  const int pixel = item % pixels, chunk = item / pixels;
  const int y = pixel / columns - shape.pad, column = pixel % columns - shape.pad;
  const int c0 = block * kTapChannels + chunk * kCount, here = shape.c - c0;
  const bool inside = y >= 0 && y < shape.h && column >= 0 && column < shape.w && here > 0;
  const T* from = x + (image * shape.c + c0) * area + y * shape.w + column;
  ConvChunk<T> values;
#pragma unroll
  for (int e = 0; e < kCount; ++e) {
    values.values[e] = inside && e < here ? from[e * area] : T(0.0f);
  }
  std::byte* to = map + (image * s.channel_blocks + block) * s.x_map;
  *reinterpret_cast<ConvChunk<T>*>(to + slab_place(pixel * kTapX + chunk * 16, kTapX)) = values;
#endif
}

// Computes the groups' sums, [group][tap, o]. Registers and stages leave room for blocks of another
// launch, because the lowest layer's gradients run concurrently.
template <typename T, int kFilter>
__global__ void __launch_bounds__(kTapThreads, kFilter <= 5 ? 2 : 1)
    conv2d_grad_w_wgmma_kernel(ImplicitShape shape, StreamShape s, const std::byte* dz,
                               const std::byte* x, float* partial) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) std::byte memory[];
  auto* barriers = reinterpret_cast<Mbarrier*>(memory);
  std::byte* ring = memory + kTapHead;
  const int u = blockIdx.x % kFilter, channels = blockIdx.x / kFilter;
  const int each = (shape.n + int(gridDim.y) - 1) / int(gridDim.y);
  const int first = int(blockIdx.y) * each, images = min(shape.n, first + each) - first;
  const int x_first = u * s.dx.columns, x_from = x_first / 8 * 8;
  dz += int64_t(blockIdx.z) * s.dx.slab_bytes + s.dz_from * kTapDz;
  x += int64_t(channels) * s.x_map + x_from * kTapX;
  const auto fetch = [&](int image) {
    if (threadIdx.x != 0 || image >= images) return;
    const int64_t i = first + image;
    std::byte* to = ring + image % s.stages * s.stage;
    Mbarrier* barrier = barriers + image % s.stages;
    mbarrier_arrive_expect(barrier, uint32_t(s.dz_bytes + s.x_bytes));
    bulk_load(to, dz + i * s.dx.slabs * s.dx.slab_bytes, uint32_t(s.dz_bytes), barrier);
    bulk_load(to + s.stage - s.x_bytes, x + i * s.channel_blocks * s.x_map, uint32_t(s.x_bytes),
              barrier);
  };
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < s.stages; ++stage) mbarrier_init(barriers + stage, 1);
    mbarrier_init_fence();
    for (int image = 0; image < s.stages; ++image) fetch(image);
  }
  __syncthreads();

  const int group = threadIdx.x / 128;
  float acc[kFilter * 16] = {};
#pragma unroll 1
  for (int image = 0; image < images; ++image) {
    mbarrier_wait(barriers + image % s.stages, uint32_t(image / s.stages & 1));
    const uint32_t base = smem_address(ring + image % s.stages * s.stage);
    const uint32_t dzs = base + (s.dz_first - s.dz_from) * kTapDz;
    const uint32_t xs = base + s.stage - s.x_bytes + (x_first - x_from) * kTapX;
    wgmma_fence();
#pragma unroll 4
    for (int step = 0; step < s.pixels / (kTapGroups * 16); ++step) {
      const int at = (step * kTapGroups + group) * 16;
      const uint64_t a = wgmma_descriptor(dzs + at * kTapDz, 16, 8 * kTapDz, kTapDz);
      const uint64_t b = wgmma_descriptor(xs + at * kTapX, kTapX, 8 * kTapX, kTapX);
      wgmma_taps<T, kFilter>(acc, a, b);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_keep(acc);
    __syncthreads();  // all threads are done with this image
    fetch(image + s.stages);
  }

  // Adds the second warpgroup's sums to the first's.
  auto* sums = reinterpret_cast<float*>(ring);
  const int mine = threadIdx.x % 128;
  if (group == 1) {
#pragma unroll
    for (int e = 0; e < kFilter * 16; ++e) sums[e * 128 + mine] = acc[e];
  }
  __syncthreads();
  if (group == 1) return;
  const int64_t weights = int64_t(shape.k) * shape.c * kFilter * kFilter;
  const int o = blockIdx.z * kTapOutputs + mine / 32 * 16 + mine % 32 / 4;
  const int c = channels * kTapChannels + mine % 4 * 2;
#pragma unroll
  for (int e = 0; e < kFilter * 16; ++e) {
    const int v = e / 16, at_c = c + e % 16 / 4 * 8 + e % 2, at_o = o + e / 2 % 2 * 8;
    if (at_c >= shape.c || at_o >= shape.k) continue;
    partial[blockIdx.y * weights + int64_t((at_c * kFilter + u) * kFilter + v) * shape.k + at_o] =
        acc[e] + sums[e * 128 + mine];
  }
#endif
}

}  // namespace ridgeline::cuda
