#pragma once

#include "ridgeline/cuda/conv1d/chain_norm.cuh"
#include "ridgeline/cuda/device/bulk_copy.cuh"
#include "ridgeline/cuda/device/tma.cuh"
#include "ridgeline/cuda/device/wgmma.cuh"

// One block per SM walks over pairs of samples, which stay in its shared memory from the first
// convolution to the pool, while the weights stream in from L2. Products are transposed: channels
// are wgmma's rows (64 per warpgroup) and the 2 x 112 positions its columns, so that a weight read
// from L2 serves two samples. A convolution's 256 channels take two passes of 128.
//
// Positions are rows of 64 channels in four chunks of 28 KB. The results of the first pass go to
// two spare buffers while the second pass still reads its input; those of the second pass overwrite
// their input once all threads have read it. The spare pair therefore alternates with each
// convolution.
namespace ridgeline::cuda {

// The buffer of chunk `chunk` of a convolution's input. The first two chunks are in buffers 0 and
// 1, or in 4 and 5 (`spare`).
__device__ inline int chain_buffer(int chunk, int spare) {
  return chunk < 2 && spare ? 4 + chunk : chunk;
}

// The one thread that issues the loads: the rows of a pair of samples, then all the weights they
// are multiplied with.
template <typename T>
__device__ inline void chain_load(const CUtensorMap* map_x, const ChainWork& work,
                                  ChainBarriers* barriers, char* buffers, char* ring) {
  StageCursor<Chain::kStages> at;
  uint32_t rows_parity = 0;
  int spare = 0;
  for (int tile = blockIdx.x; tile < work.tiles; tile += gridDim.x) {
    if (tile != blockIdx.x) {
      mbarrier_wait(&barriers->rows_empty, rows_parity);
      rows_parity ^= 1;
    }
    for (int c = 0; c < Chain::kChunks; ++c) {
      mbarrier_arrive_expect(&barriers->rows_full[c], Chain::kChunkBytes);
      tma_load(buffers + chain_buffer(c, spare) * Chain::kChunkBytes, map_x,
               &barriers->rows_full[c], c * kStageDepth<T>, tile * Chain::kColumns);
    }
    const int stages = Chain::kPasses * (work.layers * Chain::kStagesPerPass + Chain::kNormStages);
    for (int s = 0; s < stages; ++s, at.next()) {
      mbarrier_wait(&barriers->empty[at.stage], at.parity ^ 1);
      mbarrier_arrive_expect(&barriers->full[at.stage], Chain::kStageBytes);
      bulk_load(ring + at.stage * Chain::kStageBytes, work.stages + int64_t{s} * Chain::kStageBytes,
                Chain::kStageBytes, &barriers->full[at.stage]);
    }
    spare ^= (work.layers + 1) & 1;
  }
}

// The work of a thread that multiplies.
template <typename T>
struct ChainThread {
  const ChainWork& work;
  ChainBarriers* barriers;
  char *buffers, *ring;
  float4* scratch;
  int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  int lane = thread % 32, warp = thread / 32;
  StageCursor<Chain::kStages> at = {};
  uint32_t rows_parity = 0;
  int spare = 0;  // where the first two chunks of the layer's input are
  ChainMoments moments = {};

  __device__ int channel(int pass) const { return pass * 128 + group * 64 + warp * 16 + lane / 4; }

  // One pass of a convolution: 128 results per position, of which this warpgroup computes 64.
  __device__ void multiply(float (&acc)[112], int layer, int pass) {
    Mbarrier* used = nullptr;
#pragma unroll 1
    for (int chunk = 0; chunk < Chain::kChunks; ++chunk) {
      if (layer == 0 && pass == 0) mbarrier_wait(&barriers->rows_full[chunk], rows_parity);
      const uint32_t rows = smem_address(buffers + chain_buffer(chunk, spare) * Chain::kChunkBytes);
#pragma unroll 1
      for (int tap = 0; tap < Chain::kTaps; ++tap) {
#pragma unroll
        for (int part = 0; part < 2; ++part, at.next()) {
          mbarrier_wait(&barriers->full[at.stage], at.parity);
          const uint32_t a = smem_address(ring + at.stage * Chain::kStageBytes) +
                             uint32_t(group) * 64 * Chain::kStageRow;
          // The swizzle is a function of the address, so rows may begin anywhere.
          const uint32_t b = rows + tap * kStageRowBytes + part * Chain::kStageRow;
          wgmma_fence();
#pragma unroll
          for (int step = 0; step < 2; ++step) {
            wgmma_224<T>(acc, wgmma_descriptor(a + step * 32, 16, 8 * Chain::kStageRow, 64),
                         wgmma_descriptor(b + step * 32, 16, 8 * kStageRowBytes, 128),
                         chunk > 0 || tap > 0 || part > 0 || step > 0);
          }
          wgmma_commit();
          wgmma_wait<1>();  // the previous stage has been read
          if (used != nullptr && thread == 0) mbarrier_arrive_for(used, 128);
          used = &barriers->empty[at.stage];
        }
      }
    }
    wgmma_wait<0>();
    if (thread == 0) mbarrier_arrive_for(used, 128);
    wgmma_keep(acc);
  }

  // Applies relu and stores the input of the next convolution.
  __device__ void hand_on(const float (&acc)[112], float low, float high, int pass) {
    uint32_t packed[Chain::kWords];
#pragma unroll
    for (int j = 0; j < Chain::kWords / 2; ++j) {
      packed[2 * j] = pack_relu<T>(acc[4 * j] + low, acc[4 * j + 1] + low);
      packed[2 * j + 1] = pack_relu<T>(acc[4 * j + 2] + high, acc[4 * j + 3] + high);
    }
    // The results of the second pass overwrite the input of the products.
    if (pass == 1) named_barrier(1, Chain::kMultiplying);
    // The address of this lane's row of four matrices in a chunk: eight positions of eight
    // channels.
    const uint32_t to = smem_address(buffers) +
                        chain_buffer(pass * 2 + group, spare ^ 1) * Chain::kChunkBytes +
                        uint32_t(lane / 16 * 8 + lane % 8) * kStageRowBytes +
                        (uint32_t(warp * 2 + lane / 8 % 2) ^ uint32_t(lane % 8)) * 16;
#pragma unroll
    for (int j = 0; j < Chain::kWords / 4; ++j) {
      const uint32_t four[4] = {packed[4 * j], packed[4 * j + 1], packed[4 * j + 2],
                                packed[4 * j + 3]};
      store_matrices_transposed(to + j * 16 * kStageRowBytes, four);
    }
    if (pass == 0) return;
    fence_async_proxy();
    named_barrier(1, Chain::kMultiplying);
  }

  // The normalisation needs both passes: the first is kept in the spare pair, a word per thread.
  __device__ uint32_t stash() const {
    return smem_address(buffers + chain_buffer(0, spare ^ 1) * Chain::kChunkBytes) +
           threadIdx.x * 4;
  }

  __device__ void finish(float (&acc)[112], float low, float high, int pass, int tile, T* y) {
#pragma unroll
    for (int i = 0; i < 112; ++i) acc[i] += i % 4 < 2 ? low : high;
    ChainScale scale;
    if (pass == 0) {
      moments = chain_first_moments(acc, work.left, scratch);
    } else {
      scale = chain_scale(acc, moments, work, scratch);
    }
    uint32_t packed[Chain::kWords];
#pragma unroll
    for (int i = 0; i < Chain::kWords; ++i) packed[i] = pack_two<T>(acc[2 * i], acc[2 * i + 1]);
    if (pass == 0) {
#pragma unroll
      for (int i = 0; i < Chain::kWords; ++i) {
        store_shared_32(stash() + i * Chain::kStashPitch, packed[i]);
      }
      return;
    }
    const auto norm = [&](int j) { return next_norm(j); };
    chain_finish<T>([&](int i) { return packed[i]; }, norm, scale, work, tile, channel(1), y);
    const uint32_t from = stash();
    chain_finish<T>([&](int i) { return load_shared_32(from + i * Chain::kStashPitch); }, norm,
                    scale, work, tile, channel(0), y);
    named_barrier(1, Chain::kMultiplying);  // the stashed results have been read
  }

  // gamma and beta of columns j: this thread's 16 bytes of each half of a stage.
  __device__ uint4 next_norm(int j) {
    if (j % 2 == 0) mbarrier_wait(&barriers->full[at.stage], at.parity);
    const uint4 norm = load_shared_128(smem_address(ring + at.stage * Chain::kStageBytes) +
                                       (j % 2 * Chain::kMultiplying + threadIdx.x) * 16);
    if (j % 2 == 1) {
      mbarrier_arrive(&barriers->empty[at.stage]);
      at.next();
    }
    return norm;
  }

  __device__ void run(T* y) {
    for (int tile = blockIdx.x; tile < work.tiles; tile += gridDim.x) {
#pragma unroll 1
      for (int layer = 0; layer < work.layers; ++layer, spare ^= 1) {
        const bool last = layer + 1 == work.layers;
#pragma unroll 1
        for (int pass = 0; pass < Chain::kPasses; ++pass) {
          const float* bias = work.biases + layer * Chain::kChannels + channel(pass);
          const float low = __ldg(bias), high = __ldg(bias + 8);
          float acc[112];
          multiply(acc, layer, pass);
          if (!last) {
            hand_on(acc, low, high, pass);
          } else {
            if (pass == 1 && thread == 0) mbarrier_arrive(&barriers->rows_empty);
            finish(acc, low, high, pass, tile, y);
          }
        }
      }
      rows_parity ^= 1;
      spare ^= 1;  // the next rows go where the last layer's input was
    }
  }
};

template <typename T>
__global__ __launch_bounds__(Chain::kThreads, 1) void conv1d_chain_norm_pool_wgmma_kernel(
    const __grid_constant__ CUtensorMap map_x, const ChainWork work, T* __restrict__ y) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ char smem_raw[];
  char* buffers = smem_raw + (-smem_address(smem_raw) & 1023);
  char* ring = buffers + Chain::kBuffers * Chain::kChunkBytes;
  auto* barriers = reinterpret_cast<ChainBarriers*>(ring + Chain::kStages * Chain::kStageBytes);
  auto* scratch = reinterpret_cast<float4*>(barriers + 1);
  static_assert(sizeof(ChainBarriers) + 8 * sizeof(float4) <= 512);

  if (threadIdx.x == 0) {
    for (int s = 0; s < Chain::kStages; ++s) {
      mbarrier_init(&barriers->full[s], 1);
      mbarrier_init(&barriers->empty[s], Chain::kMultiplying);
    }
    for (int c = 0; c < Chain::kChunks; ++c) mbarrier_init(&barriers->rows_full[c], 1);
    mbarrier_init(&barriers->rows_empty, Chain::kConsumers);
    mbarrier_init_fence();
  }
  __syncthreads();
  if (threadIdx.x >= Chain::kMultiplying) {
    give_registers<40>();
    if (threadIdx.x == Chain::kMultiplying) {
      tma_prefetch_map(&map_x);
      chain_load<T>(&map_x, work, barriers, buffers, ring);
    }
  } else {
    take_registers<232>();
    ChainThread<T>{work, barriers, buffers, ring, scratch}.run(y);
  }
#else
  __trap();  // not compiled for sm_90a
#endif
}

}  // namespace ridgeline::cuda
