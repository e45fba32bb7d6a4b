#pragma once

#include "ridgeline/cuda/conv1d/chain_norm.cuh"
#include "ridgeline/cuda/device/tma.cuh"
#include "ridgeline/cuda/device/wgmma.cuh"

// One block an SM walks over pairs of items, which stay in its shared memory from the first
// convolution to the pool; weights stream past them from the L2. Products are turned: channels are
// wgmma's rows (64 a warpgroup) and the 2 x 112 positions its columns, so that a weight read from
// the L2 serves two items, and a convolution's 256 channels take two passes of 128.
//
// Positions lie as rows of 64 channels, four chunks of 28 KB. The results of the first pass go to
// two spare buffers while the second still reads its input, those of the second over their input
// once all have read it; so the spare pair changes place with each convolution.
namespace ridgeline::cuda {

// Chunk c of a convolution's input. The first two lie in buffers 0 and 1, or 4 and 5 (`spare`).
__device__ inline int chain_buffer(int chunk, int spare) {
  return chunk < 2 && spare ? 4 + chunk : chunk;
}

// The one thread that loads: rows of a pair of items, then all weights that they meet.
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
      bulk_load(smem_address(ring + at.stage * Chain::kStageBytes),
                work.stages + int64_t{s} * Chain::kStageBytes, Chain::kStageBytes,
                smem_address(&barriers->full[at.stage]));
    }
    spare ^= (work.layers + 1) & 1;
  }
}

// What the multiplying warpgroups do.
template <typename T>
__device__ inline void chain_multiply(const ChainWork& work, ChainBarriers* barriers, char* buffers,
                                      char* ring, float4* room, T* __restrict__ y) {
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128;
  const int lane = thread % 32, warp = thread / 32;
  StageCursor<Chain::kStages> at;
  uint32_t rows_parity = 0;
  int spare = 0;
  ChainMoments moments;
  // Where this lane's row of four matrices goes in a chunk: eight positions of eight channels.
  const uint32_t store_at = uint32_t(lane / 16 * 8 + lane % 8) * kStageRowBytes +
                            (uint32_t(warp * 2 + lane / 8 % 2) ^ uint32_t(lane % 8)) * 16;
  for (int tile = blockIdx.x; tile < work.tiles; tile += gridDim.x) {
#pragma unroll 1
    for (int layer = 0; layer < work.layers; ++layer, spare ^= 1) {
      const bool last = layer + 1 == work.layers;
#pragma unroll 1
      for (int pass = 0; pass < Chain::kPasses; ++pass) {
        const int channel = pass * 128 + group * 64 + warp * 16 + lane / 4;
        const float low = __ldg(work.biases + layer * Chain::kChannels + channel);
        const float high = __ldg(work.biases + layer * Chain::kChannels + channel + 8);
        float acc[112];
        Mbarrier* used = nullptr;
#pragma unroll 1
        for (int chunk = 0; chunk < Chain::kChunks; ++chunk) {
          if (layer == 0 && pass == 0) mbarrier_wait(&barriers->rows_full[chunk], rows_parity);
          const uint32_t rows =
              smem_address(buffers + chain_buffer(chunk, spare) * Chain::kChunkBytes);
#pragma unroll 1
          for (int tap = 0; tap < Chain::kTaps; ++tap) {
#pragma unroll
            for (int part = 0; part < 2; ++part, at.next()) {
              mbarrier_wait(&barriers->full[at.stage], at.parity);
              const uint32_t a = smem_address(ring + at.stage * Chain::kStageBytes) +
                                 group * 64 * Chain::kStageRow;
              const uint32_t b = rows + tap * kStageRowBytes + part * Chain::kStageRow;
              wgmma_fence();
#pragma unroll
              for (int step = 0; step < 2; ++step) {
                wgmma_224<T>(acc, wgmma_descriptor(a + step * 32, 16, 8 * Chain::kStageRow, 64),
                             wgmma_descriptor(b + step * 32, 16, 8 * kStageRowBytes, 128),
                             chunk > 0 || tap > 0 || part > 0 || step > 0);
              }
              wgmma_commit();
              wgmma_wait<1>();
              if (used != nullptr && thread == 0) mbarrier_arrive(used);
              used = &barriers->empty[at.stage];
            }
          }
        }
        wgmma_wait<0>();
        if (thread == 0) {
          mbarrier_arrive(used);
          if (last && pass == 1) mbarrier_arrive(&barriers->rows_empty);
        }
        wgmma_keep(acc);

        uint32_t packed[Chain::kWords];
        if (last) {
#pragma unroll
          for (int j = 0; j < 28; ++j) {
            packed[2 * j] = pack_two<T>(acc[4 * j] + low, acc[4 * j + 1] + low);
            packed[2 * j + 1] = pack_two<T>(acc[4 * j + 2] + high, acc[4 * j + 3] + high);
          }
        } else {
#pragma unroll
          for (int j = 0; j < 28; ++j) {
            packed[2 * j] = pack_relu<T>(acc[4 * j] + low, acc[4 * j + 1] + low);
            packed[2 * j + 1] = pack_relu<T>(acc[4 * j + 2] + high, acc[4 * j + 3] + high);
          }
        }
        // Results of the second pass overwrite what the products have read.
        if (pass == 1 && !last) named_barrier(1, Chain::kMultiplying);
        if (!last) {
          const int chunk = pass * 2 + group;
          const uint32_t to = smem_address(buffers) +
                              chain_buffer(chunk, spare ^ 1) * Chain::kChunkBytes + store_at;
#pragma unroll
          for (int j = 0; j < 14; ++j) {
            const uint32_t four[4] = {packed[4 * j], packed[4 * j + 1], packed[4 * j + 2],
                                      packed[4 * j + 3]};
            store_matrices_transposed(to + j * 16 * kStageRowBytes, four);
          }
          if (pass == 1) {
            fence_async_proxy();
            named_barrier(1, Chain::kMultiplying);
          }
          continue;
        }
        // The normalisation needs both passes: the first waits in the spare pair, a word a thread.
        const uint32_t stash =
            smem_address(buffers + chain_buffer(0, spare ^ 1) * Chain::kChunkBytes) +
            threadIdx.x * 4;
        if (pass == 0) {
          moments = chain_first_moments<T>(packed, work.left, room);
#pragma unroll
          for (int i = 0; i < Chain::kWords; ++i) {
            store_shared_32(stash + i * Chain::kStashPitch, packed[i]);
          }
          continue;
        }
        const ChainScale scale = chain_scale<T>(packed, moments, work, room);
        // A thread's own 16 bytes of each half of a stage.
        const auto next_norm = [&](int j) {
          if (j % 2 == 0) mbarrier_wait(&barriers->full[at.stage], at.parity);
          const uint4 norm = load_shared_128(smem_address(ring + at.stage * Chain::kStageBytes) +
                                             (j % 2 * Chain::kMultiplying + threadIdx.x) * 16);
          if (j % 2 == 1) {
            named_barrier(3 + group, 128);  // all of the warpgroup have read it
            if (thread == 0) mbarrier_arrive(&barriers->empty[at.stage]);
            at.next();
          }
          return norm;
        };
        const auto now = [&](int i) { return packed[i]; };
        const auto before = [&](int i) { return load_shared_32(stash + i * Chain::kStashPitch); };
        chain_finish<T>(now, next_norm, scale, work, tile, channel, y);
        chain_finish<T>(before, next_norm, scale, work, tile, channel - 128, y);
        named_barrier(1, Chain::kMultiplying);  // the stash has been read
      }
    }
    rows_parity ^= 1;
    // `spare` has moved on by one a layer; the next rows lie where the last layer's input lay.
    spare ^= 1;
  }
}

template <typename T>
__global__ __launch_bounds__(Chain::kThreads, 1) void conv1d_chain_norm_pool_wgmma_kernel(
    const __grid_constant__ CUtensorMap map_x, const ChainWork work, T* __restrict__ y) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ char smem_raw[];
  char* buffers = smem_raw + (-smem_address(smem_raw) & 1023);
  char* ring = buffers + Chain::kBuffers * Chain::kChunkBytes;
  auto* barriers = reinterpret_cast<ChainBarriers*>(ring + Chain::kStages * Chain::kStageBytes);
  auto* room = reinterpret_cast<float4*>(barriers + 1);
  static_assert(sizeof(ChainBarriers) + 8 * sizeof(float4) <= 512);

  if (threadIdx.x == 0) {
    for (int s = 0; s < Chain::kStages; ++s) {
      mbarrier_init(&barriers->full[s], 1);
      mbarrier_init(&barriers->empty[s], Chain::kConsumers);
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
    chain_multiply<T>(work, barriers, buffers, ring, room, y);
  }
#else
  __trap();  // built without 90a
#endif
}

}  // namespace ridgeline::cuda
