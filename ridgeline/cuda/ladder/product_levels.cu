#include "ridgeline/cuda/half_product/warp_product.cuh"
#include "ridgeline/cuda/ladder/product_levels.h"

namespace ridgeline::cuda {
namespace {

// Values past the extents are zero.
__device__ __half element(const HalfOperand& operand, int row, int k, int rows, int columns) {
  if (row >= rows || k >= columns) return __half(0.f);
  return operand.data[row * operand.row_pitch + k * operand.k_pitch];
}

__global__ void naive_product_kernel(HalfProduct p) {
  const int row = int(blockIdx.y * blockDim.y + threadIdx.y);
  const int column = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= p.m || column >= p.n) return;
  float sum = 0;
  for (int k = 0; k < p.k; ++k) {
    sum += float(element(p.a, row, k, p.m, p.k)) * float(element(p.b, column, k, p.n, p.k));
  }
  store_result(p, row, column, sum);
}

constexpr int kSide = 16;  // the side of the block tile, and of a naive block

__global__ void block_tile_product_kernel(HalfProduct p) {
  __shared__ __half a[kSide][kSide + 2], b[kSide][kSide + 2];  // [row, k]
  const int x = int(threadIdx.x), y = int(threadIdx.y);
  const int row = int(blockIdx.y) * kSide, column = int(blockIdx.x) * kSide;
  float sum = 0;
  for (int k = 0; k < p.k; k += kSide) {
    a[y][x] = element(p.a, row + y, k + x, p.m, p.k);
    b[y][x] = element(p.b, column + y, k + x, p.n, p.k);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kSide; ++i) sum += float(a[y][i]) * float(b[x][i]);
    __syncthreads();
  }
  store_result(p, row + y, column + x, sum);
}

constexpr int kTile = 64, kDepth = 16, kPitch = kDepth + kHalfPad;

__global__ void __launch_bounds__(256) warp_tile_product_kernel(HalfProduct p) {
  __shared__ __align__(16) __half a[kTile * kPitch], b[kTile * kPitch];
  const int thread = int(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int row = int(blockIdx.y) * kTile, column = int(blockIdx.x) * kTile;
  // Warps form 4 x 2 tiles of 16 x 32; lanes form 4 x 8 tiles of 4 x 4.
  const int r = warp / 2 * 16 + lane / 8 * 4, c = warp % 2 * 32 + lane % 8 * 4;
  float sums[4][4] = {};
  Slab<kTile, kDepth, 256, 1> slab_a, slab_b;
  for (int k = 0; k < p.k; k += kDepth) {
    slab_a.fetch(p.a, row, k, p.m, p.k, thread);
    slab_b.fetch(p.b, column, k, p.n, p.k, thread);
    slab_a.put(p.a, a, kPitch, thread);
    slab_b.put(p.b, b, kPitch, thread);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kDepth; ++i) {
      float left[4], right[4];
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        left[v] = float(a[(r + v) * kPitch + i]);
        right[v] = float(b[(c + v) * kPitch + i]);
      }
#pragma unroll
      for (int v = 0; v < 4; ++v) {
#pragma unroll
        for (int w = 0; w < 4; ++w) sums[v][w] += left[v] * right[w];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int v = 0; v < 4; ++v) {
#pragma unroll
    for (int w = 0; w < 4; ++w) store_result(p, row + r + v, column + c + w, sums[v][w]);
  }
}

__global__ void __launch_bounds__(128) tensor_core_product_kernel(HalfProduct p) {
  __shared__ __align__(16) __half a[kTile * kPitch], b[kTile * kPitch];
  const int thread = int(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int row = int(blockIdx.y) * kTile, column = int(blockIdx.x) * kTile;
  const int r = warp / 2 * kWarpTile, c = warp % 2 * kWarpTile;
  WarpProduct<float> product;
  Slab<kTile, kDepth, 128, 1> slab_a, slab_b;
  for (int k = 0; k < p.k; k += kDepth) {
    slab_a.fetch(p.a, row, k, p.m, p.k, thread);
    slab_b.fetch(p.b, column, k, p.n, p.k, thread);
    slab_a.put(p.a, a, kPitch, thread);
    slab_b.put(p.b, b, kPitch, thread);
    __syncthreads();
    product.multiply<kDepth>(a + r * kPitch, b + c * kPitch, kPitch, lane);
    __syncthreads();
  }
  product.for_each_pair(lane, [&](int i, int j, float x, float y) {
    store_result(p, row + r + i, column + c + j, x);
    store_result(p, row + r + i, column + c + j + 1, y);
  });
}

constexpr int kWarps = 8;

__global__ void __launch_bounds__(kWarps * 32) parallel_k_product_kernel(HalfProduct p) {
  // Large enough for the warps' operands and for their sums.
  __shared__ __align__(16) float memory[kWarps * kWarpTile * kWarpTile];
  static_assert(sizeof(memory) >= kWarps * 2 * kWarpTile * kPitch * sizeof(__half));
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const int row = int(blockIdx.y) * kWarpTile, column = int(blockIdx.x) * kWarpTile;
  __half* a = reinterpret_cast<__half*>(memory) + warp * 2 * kWarpTile * kPitch;
  __half* b = a + kWarpTile * kPitch;
  WarpProduct<float> product;
  Slab<kWarpTile, kDepth, 32, 1> slab_a, slab_b;
  for (int k = warp * kDepth; k < p.k; k += kWarps * kDepth) {
    slab_a.fetch(p.a, row, k, p.m, p.k, lane);
    slab_b.fetch(p.b, column, k, p.n, p.k, lane);
    slab_a.put(p.a, a, kPitch, lane);
    slab_b.put(p.b, b, kPitch, lane);
    __syncwarp();
    product.multiply<kDepth>(a, b, kPitch, lane);
    __syncwarp();  // every lane has read the slab before it is overwritten
  }
  store_parallel_k<kWarps>(product, p, row, column, memory);
}

dim3 tiles(const HalfProduct& p, int side) {
  return {unsigned((p.n + side - 1) / side), unsigned((p.m + side - 1) / side)};
}

}  // namespace

cudaError_t launch_product_level(const HalfProduct& p, ProductLevel level, cudaStream_t stream) {
  switch (level) {
    case ProductLevel::naive:
      naive_product_kernel<<<tiles(p, kSide), dim3(kSide, kSide), 0, stream>>>(p);
      break;
    case ProductLevel::block_tile:
      block_tile_product_kernel<<<tiles(p, kSide), dim3(kSide, kSide), 0, stream>>>(p);
      break;
    case ProductLevel::warp_tile:
      warp_tile_product_kernel<<<tiles(p, kTile), 256, 0, stream>>>(p);
      break;
    case ProductLevel::tensor_cores:
      tensor_core_product_kernel<<<tiles(p, kTile), 128, 0, stream>>>(p);
      break;
    case ProductLevel::parallel_k:
      parallel_k_product_kernel<<<tiles(p, kWarpTile), kWarps * 32, 0, stream>>>(p);
      break;
  }
  return cudaGetLastError();
}

}  // namespace ridgeline::cuda
