#include "ridgeline/cuda/half_product/warp_product.cuh"

namespace ridgeline::cuda {
namespace {

constexpr int kWarps = 8;  // per block; each sums a share of k for the same tile
// Columns per slab. Single values take one register each until they are stored.
constexpr int depth_of(int vector) { return vector == 8 ? 32 : 16; }
constexpr int kMostDepth = depth_of(8);

// One block per tile of 32 x 32 results. The warps take slabs of k in turn (parallel-K), and each
// fetches its next slab while it multiplies the current one (software pipelining). Warps share
// nothing until their sums are added, so the loop has no block barrier.
template <typename Sum, int kVector>
__global__ void __launch_bounds__(kWarps * 32) half_product_kernel(HalfProduct p) {
  constexpr int kDepth = depth_of(kVector), kPitch = kDepth + kHalfPad;
  __shared__ __align__(16) __half operands[kWarps][2][kWarpTile * (kMostDepth + kHalfPad)];
  static_assert(sizeof(operands) >= kWarps * kWarpTile * kWarpTile * sizeof(float));
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  const int row = int(blockIdx.y) * kWarpTile, column = int(blockIdx.x) * kWarpTile;
  __half *a = operands[warp][0], *b = operands[warp][1];
  WarpProduct<Sum> product;
  Slab<kWarpTile, kDepth, 32, kVector> next_a, next_b;
  const auto fetch = [&](int k) {
    next_a.fetch(p.a, row, k, p.m, p.k, lane);
    next_b.fetch(p.b, column, k, p.n, p.k, lane);
  };
  int k = warp * kDepth;
  if (k < p.k) fetch(k);
  while (k < p.k) {
    next_a.put(p.a, a, kPitch, lane);
    next_b.put(p.b, b, kPitch, lane);
    __syncwarp();
    k += kWarps * kDepth;
    if (k < p.k) fetch(k);
    product.template multiply<kDepth>(a, b, kPitch, lane);
    __syncwarp();  // every lane has read the slab before it is overwritten
  }
  store_parallel_k<kWarps>(product, p, row, column, reinterpret_cast<float*>(operands));
}

// Whether an operand can be read in vectors of eight: they begin at multiples of 16 bytes, and none
// crosses an extent.
bool takes_vectors(const HalfOperand& operand, int rows, int columns) {
  const bool along_k = operand.k_pitch == 1;
  const int64_t pitch = along_k ? operand.row_pitch : operand.k_pitch;
  return reinterpret_cast<uintptr_t>(operand.data) % 16 == 0 && pitch % 8 == 0 &&
         (along_k ? columns : rows) % 8 == 0;
}

template <typename Sum>
cudaError_t launch(const HalfProduct& p, cudaStream_t stream) {
  const dim3 grid(unsigned((p.n + kWarpTile - 1) / kWarpTile),
                  unsigned((p.m + kWarpTile - 1) / kWarpTile));
  if (takes_vectors(p.a, p.m, p.k) && takes_vectors(p.b, p.n, p.k)) {
    half_product_kernel<Sum, 8><<<grid, kWarps * 32, 0, stream>>>(p);
  } else {
    half_product_kernel<Sum, 1><<<grid, kWarps * 32, 0, stream>>>(p);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_half_product(const HalfProduct& product, HalfSums sums, cudaStream_t stream) {
  return sums == HalfSums::fp16 ? launch<__half>(product, stream) : launch<float>(product, stream);
}

}  // namespace ridgeline::cuda
