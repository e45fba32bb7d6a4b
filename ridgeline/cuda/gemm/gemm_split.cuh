#pragma once

#include "ridgeline/cuda/device/cluster_handover.cuh"
#include "ridgeline/cuda/gemm/epilogue.cuh"
#include "ridgeline/cuda/gemm/launch.h"
#include "ridgeline/cuda/gemm/operand_tile.cuh"

// Split-K on Hopper, for few or short tiles (thin products, small matrices, small k). A cluster of
// 1 to 8 blocks shares a tile of D and splits k. Each block multiplies its part of k, sends its
// partial sums to the others through distributed shared memory, and finishes its own rows of the
// tile, adding the parts in a fixed order.
namespace ridgeline::cuda {

// A cluster computes kM x kN of D. kStages_ is deep enough that most of a block's part of k is in
// flight at once.
template <int kM_, int kN_, int kStages_>
struct SplitTile {
  static constexpr int kM = kM_, kN = kN_, kStages = kStages_;
  static constexpr int kConsumers = kM / 64;
  static constexpr int kThreads = kConsumers * 128 + 32;  // plus a producer warp
  static constexpr int kStageBytes = (kM + kN) * kStageRowBytes;
  static constexpr int kAlignment = 1024;
  // The pitch of partial sums. Four extra floats per row spread the eight rows that a warp writes
  // at once over the banks, two to each. Eight would remove all conflicts but leave no room for a
  // second block per SM.
  static constexpr int kPitch = kN + 4;
  static constexpr int kGroupFloats = 8 * kPitch;
  static constexpr int kGroups = kM / 8;  // groups of 8 rows: a block finishes whole groups
  static constexpr int kMaxSplit = 8;     // the largest cluster size that every device supports
  // Copying whole groups made 64x64 tiles 2 to 7 % faster at N = 64, and 1 % slower at N = 128 and
  // 256.
  static constexpr bool kExchangeByCopies = kM * kN > 64 * 32;
  static constexpr int kRingBytes = kStages * kStageBytes + 256;  // stages, then their barriers

  // Bytes received by a block that finishes `slots` groups: rows without padding, including its
  // own, or whole groups of the other blocks.
  static constexpr int received_bytes(int slots, int split) {
    return kExchangeByCopies ? slots * (split - 1) * kGroupFloats * 4 : slots * split * 8 * kN * 4;
  }
  static constexpr int smem_bytes(int split) {
    const int slots = (kGroups + split - 1) / split;
    const int parts = slots * split * kGroupFloats * 4;
    // A single block reuses its stages for the sums; in a cluster other blocks may still read
    // theirs.
    return kAlignment + (split == 1 ? std::max(kRingBytes, parts) : kRingBytes + parts);
  }
  // An SM of sm_90 has 228 KB, of which each block reserves 1 KB.
  static constexpr int blocks_per_sm(int split) {
    return 2 * (smem_bytes(split) + 1024) <= 228 * 1024 ? 2 : 1;
  }
  // The limit is an attribute of the GPU function, not of a launch, so it must suffice for every
  // split.
  static constexpr int max_smem_bytes() {
    int most = 0;
    for (int split = 1; split <= kMaxSplit; ++split) most = std::max(most, smem_bytes(split));
    return most;
  }
};

// The host computes divisions by values known only at launch. On the device each would take some 30
// instructions, and the start and end of a block are most of a small product's time.

// Splits a count into nearly equal parts: the first `longer` parts have one more.
struct EvenParts {
  int shorter, longer;

  static EvenParts of(int all, int parts) { return {all / parts, all % parts}; }
  __device__ int first(int part) const { return part * shorter + min(part, longer); }
  __device__ int count(int part) const { return shorter + (part < longer ? 1 : 0); }
};

// Division of values below 256 by a divisor of up to 8, by multiplication.
struct SmallDivisor {
  int by, inverse;

  static SmallDivisor of(int by) { return {by, 65536 / by + 1}; }
  __device__ int quotient(int x) const { return x * inverse >> 16; }
  __device__ int remainder(int x) const { return x - quotient(x) * by; }
};

// Operands that the previous launch does not write, and that may be fetched while it runs.
struct EarlyOperands {
  bool a, b;
};

// The destination of a warp's two groups of 8 rows of partial sums: group g goes to block g %
// split, slot g / split, part `rank` of that slot.
template <typename Tile>
__device__ inline int part_offset(int group, SmallDivisor split, int rank) {
  return (split.quotient(group) * split.by + rank) * Tile::kGroupFloats;
}

// Stores this thread's sums of group 2 * warp + half at its place in the group.
template <typename Tile, int kCount, typename Store>
__device__ inline void for_each_pair(const float (&acc)[kCount], int half, const Store& store) {
#pragma unroll
  for (int j = 0; j < Tile::kN / 8; ++j) {
    store(j * 8, float2{acc[j * 4 + half * 2], acc[j * 4 + half * 2 + 1]});
  }
}

// Small tiles: every thread stores into the memory of the other blocks (and its own), where the
// bytes are counted. The parts are complete on return, and no block touches another's memory after
// that.
template <typename Tile, int kCount>
__device__ inline void exchange_by_stores(const float (&acc)[kCount], float* parts,
                                          Mbarrier* received, SmallDivisor split, int rank) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  cluster_wait();  // every block has started
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int group = warp * 2 + half, owner = split.remainder(group);
    const float* at =
        parts + part_offset<Tile>(group, split, rank) + lane / 4 * Tile::kPitch + lane % 4 * 2;
    const uint32_t address = cluster_address(smem_address(at), owner);
    const uint32_t barrier = cluster_address(smem_address(received), owner);
    for_each_pair<Tile>(
        acc, half, [&](int col, float2 sum) { store_async_8(address + col * 4, sum, barrier); });
  }
  mbarrier_wait(received, 0);
}

// Large tiles: whole groups are copied, because a warp's remote store is eight packets of 32 bytes.
// Groups for other blocks are gathered in the memory of the stages; the block's own groups go to
// their final place.
template <typename Tile, int kCount>
__device__ inline void exchange_by_copies(const float (&acc)[kCount], float* gathered, float* parts,
                                          Mbarrier* received, SmallDivisor split, int rank) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  named_barrier(1, Tile::kConsumers * 128);  // all threads are done with the stages
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int group = warp * 2 + half;
    float* to = split.remainder(group) == rank ? parts + part_offset<Tile>(group, split, rank)
                                               : gathered + group * Tile::kGroupFloats;
    float* at = to + lane / 4 * Tile::kPitch + lane % 4 * 2;
    for_each_pair<Tile>(acc, half,
                        [&](int col, float2 sum) { *reinterpret_cast<float2*>(at + col) = sum; });
  }
  fence_async_proxy();
  __syncwarp();
  cluster_wait();  // every block has started
  const int group = warp * 2 + lane % 2, owner = split.remainder(group);
  if (lane < 2 && owner != rank) {
    bulk_copy_to_cluster(
        cluster_address(smem_address(parts + part_offset<Tile>(group, split, rank)), owner),
        gathered + group * Tile::kGroupFloats, Tile::kGroupFloats * 4,
        cluster_address(smem_address(received), owner));
  }
  __syncwarp();
  mbarrier_wait(received, 0);
  cluster_arrive_relaxed();  // what the other blocks sent has been read from their memory
  named_barrier(1, Tile::kConsumers * 128);  // this block's own groups are in place, too
}

// Adds the parts of slots in order and stores the result. A vec8 is 8 adjacent elements of D: part
// of a group's row or, if D is transposed, a column of the group. A slot has kN vec8s.
template <typename Tile, typename Out, typename Epilogue>
__device__ inline void finish_vec8s(const float* parts, int first, int end, int step, int split,
                                    int rank, int row0, int col0, const TileOutput<Out>& out,
                                    const Epilogue& epilogue) {
  for (int vec8 = first; vec8 < end; vec8 += step) {
    const int slot = vec8 / Tile::kN, index = vec8 % Tile::kN;
    const int group_row = row0 + (slot * split + rank) * 8;
    const float* part = parts + slot * split * Tile::kGroupFloats;
    float sum[8] = {};
    if (out.transposed) {
      for (int p = 0; p < split; ++p, part += Tile::kGroupFloats) {
#pragma unroll
        for (int i = 0; i < 8; ++i) sum[i] += part[i * Tile::kPitch + index];
      }
      finish_eight(sum, col0 + index, group_row, out, epilogue);
    } else {
      constexpr int kRowVec8s = Tile::kN / 8;
      const int row = index / kRowVec8s, col = index % kRowVec8s * 8;
      for (int p = 0; p < split; ++p, part += Tile::kGroupFloats) {
        const float4* source = reinterpret_cast<const float4*>(part + row * Tile::kPitch + col);
        const float4 x = source[0], y = source[1];
        sum[0] += x.x, sum[1] += x.y, sum[2] += x.z, sum[3] += x.w;
        sum[4] += y.x, sum[5] += y.y, sum[6] += y.z, sum[7] += y.w;
      }
      finish_eight(sum, group_row + row, col0 + col, out, epilogue);
    }
  }
}

// Fills the ring. Operands that do not depend on the previous launch are fetched before waiting for
// it.
template <typename In, typename ATile, typename BTile, int kStages>
__device__ inline void produce_stages(char* smem, Mbarrier* full, Mbarrier* empty,
                                      const CUtensorMap* map_a, const CUtensorMap* map_b, int row,
                                      int col, int first, int count, EarlyOperands early) {
  constexpr int kStageBytes = ATile::kBytes + BTile::kBytes;
  const auto stage = [&](int s) { return smem + s * kStageBytes; };
  const int ahead = min(count, kStages);
  const bool any_early = early.a || early.b;
  for (int i = 0; i < ahead && any_early; ++i) {
    const int k = (first + i) * kStageDepth<In>;
    mbarrier_arrive_expect(&full[i], kStageBytes);
    if (early.a) ATile::load(stage(i), map_a, &full[i], row, k);
    if (early.b) BTile::load(stage(i) + ATile::kBytes, map_b, &full[i], col, k);
  }
  const bool all_early = early.a && early.b;
  if (!all_early) {
    wait_for_previous_kernel();
    allow_next_kernel();
  }
  for (int i = 0; i < ahead; ++i) {
    const int k = (first + i) * kStageDepth<In>;
    if (!any_early) mbarrier_arrive_expect(&full[i], kStageBytes);
    if (!early.a) ATile::load(stage(i), map_a, &full[i], row, k);
    if (!early.b) BTile::load(stage(i) + ATile::kBytes, map_b, &full[i], col, k);
  }
  StageCursor<kStages> cursor;
  for (int i = ahead; i < count; ++i, cursor.next()) {
    const int k = (first + i) * kStageDepth<In>;
    mbarrier_wait(&empty[cursor.stage], cursor.parity);
    mbarrier_arrive_expect(&full[cursor.stage], kStageBytes);
    ATile::load(stage(cursor.stage), map_a, &full[cursor.stage], row, k);
    BTile::load(stage(cursor.stage) + ATile::kBytes, map_b, &full[cursor.stage], col, k);
  }
  if (all_early) {  // the next launch may rely on all launches before this one
    wait_for_previous_kernel();
    allow_next_kernel();
  }
}

// grid: blocks of a cluster, rows of tiles, columns of tiles.
template <typename In, typename Out, Major kA, Major kB, typename Tile, typename Epilogue>
__global__ __launch_bounds__(Tile::kThreads) void gemm_wgmma_split_kernel(
    const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
    SmallDivisor parted, EvenParts stages, EvenParts groups, EarlyOperands early,
    const TileOutput<Out> out, const Epilogue epilogue) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using ATile = OperandTile<In, kA, Tile::kM>;
  using BTile = OperandTile<In, kB, Tile::kN>;
  constexpr int kStages = Tile::kStages;

  extern __shared__ char smem_raw[];
  char* smem = smem_raw + (-smem_address(smem_raw) & (Tile::kAlignment - 1));
  Mbarrier* full = reinterpret_cast<Mbarrier*>(smem + kStages * Tile::kStageBytes);
  Mbarrier* empty = full + kStages;
  Mbarrier* received = empty + kStages;
  float* sums = reinterpret_cast<float*>(smem);  // reuses the stages after the last one
  float* parts = reinterpret_cast<float*>(smem + Tile::kRingBytes);  // from the other blocks

  const int split = parted.by, rank = blockIdx.x;
  const int row0 = blockIdx.y * Tile::kM, col0 = blockIdx.z * Tile::kN;
  const int first = stages.first(rank), count = stages.count(rank);
  const bool producer = threadIdx.x >= Tile::kConsumers * 128;
  const int slots = groups.count(rank);  // slots that this block finishes

  if (threadIdx.x == Tile::kConsumers * 128) {
    tma_prefetch_map(&map_a);
    tma_prefetch_map(&map_b);
    for (int s = 0; s < kStages; ++s) {
      mbarrier_init(&full[s], 1);
      mbarrier_init(&empty[s], Tile::kConsumers);
    }
    mbarrier_init(received, 1);
    mbarrier_init_fence();
    if (split > 1) mbarrier_arrive_expect(received, Tile::received_bytes(slots, split));
  }
  __syncthreads();
  if (split > 1)
    cluster_arrive_relaxed();  // waited for below: no block writes to another that has not started

  if (producer) {
    if (threadIdx.x % 32 == 0) {
      produce_stages<In, ATile, BTile, kStages>(smem, full, empty, &map_a, &map_b, row0, col0,
                                                first, count, early);
    }
    if (split == 1) return;
    __syncwarp();
    cluster_wait();
    if (!Tile::kExchangeByCopies) return;
    cluster_arrive_relaxed();
    cluster_wait();
    return;
  }

  const int consumer = uniform_warpgroup();
  float acc[1][Tile::kN / 2];
  StageCursor<kStages> cursor;
  int previous = -1;
  const uint32_t ring = uniform(smem_address(smem)), full_at = uniform(smem_address(full));
  for (int i = 0; i < count; ++i, cursor.next()) {
    mbarrier_wait_at(full_at + cursor.stage * uint32_t{sizeof(Mbarrier)}, cursor.parity);
    if constexpr (std::is_same_v<In, float>) {
      round_stage_to_tf32<Tile::kStageBytes, Tile::kConsumers * 128>(
          smem + cursor.stage * Tile::kStageBytes, threadIdx.x, 1);
    }
    const uint32_t a = ring + cursor.stage * Tile::kStageBytes;
    multiply_stage<In, ATile, BTile>(acc, a + consumer * 64 * kStageRowBytes, a + ATile::kBytes,
                                     i > 0);
    wgmma_wait<1>();
    if (previous >= 0 && threadIdx.x % 128 == 0) mbarrier_arrive(&empty[previous]);
    previous = cursor.stage;
  }
  wgmma_wait<0>();
  wgmma_keep(acc[0]);
  wait_for_previous_kernel();  // the previous launch may read or write D

  if (split == 1) {
    // Once every consumer is done with the stages, a warp handles its own 16 rows alone.
    named_barrier(1, Tile::kConsumers * 128);
    const int lane = threadIdx.x % 32, first_vec8 = threadIdx.x / 32 * 2 * Tile::kN;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float* at = sums + (threadIdx.x / 32 * 2 + half) * Tile::kGroupFloats +
                  lane / 4 * Tile::kPitch + lane % 4 * 2;
      for_each_pair<Tile>(acc[0], half,
                          [&](int col, float2 sum) { *reinterpret_cast<float2*>(at + col) = sum; });
    }
    __syncwarp();
    finish_vec8s<Tile>(sums, first_vec8 + lane, first_vec8 + 2 * Tile::kN, 32, 1, 0, row0, col0,
                       out, epilogue);
    return;
  }
  if constexpr (Tile::kExchangeByCopies) {
    exchange_by_copies<Tile>(acc[0], sums, parts, received, parted, rank);
  } else {
    exchange_by_stores<Tile>(acc[0], parts, received, parted, rank);
  }
  finish_vec8s<Tile>(parts, threadIdx.x, slots * Tile::kN, Tile::kConsumers * 128, split, rank,
                     row0, col0, out, epilogue);
  if (Tile::kExchangeByCopies) cluster_wait();  // the other blocks have read what this block sent
#else
  __trap();  // not compiled for sm_90a: variants.cuh does not offer it
#endif
}

// A and B must satisfy tma_accepts; D may have any pitch. `split` is the number of parts of k, at
// most the number of stages in k. `swapped`: the tile's rows are D's columns, for a D with few
// rows; the problem is then the transposed one (A and B exchanged), while the output is D itself.
template <typename In, typename Out, Major kA, Major kB, typename Tile, typename Epilogue>
PreparedGemm prepare_gemm_split(const GemmProblem& p, int split, bool swapped,
                                const Epilogue& epilogue, const GemmOptions& options) {
  const auto kernel = gemm_wgmma_split_kernel<In, Out, kA, kB, Tile, Epilogue>;
  using ATile = OperandTile<In, kA, Tile::kM>;
  using BTile = OperandTile<In, kB, Tile::kN>;
  const CUtensorMap map_a = ATile::make_map(p.a, p.m, p.k, p.lda);
  const CUtensorMap map_b = BTile::make_map(p.b, p.n, p.k, p.ldb);
  set_shared_memory(kernel, Tile::max_smem_bytes(), p);
  const int m = p.m, n = p.n, k = p.k;
  const TileOutput<Out> out = {static_cast<Out*>(p.d), p.ldd, swapped ? n : m, swapped ? m : n,
                               swapped};
  const dim3 grid(split, ceil_div(m, Tile::kM), ceil_div(n, Tile::kN));
  const SmallDivisor parted = SmallDivisor::of(split);
  const EvenParts stages = EvenParts::of(ceil_div(k, kStageDepth<In>), split);
  const EvenParts groups = EvenParts::of(Tile::kGroups, split);
  const bool overlap = options.overlap_previous;
  const EarlyOperands early = {overlap && (swapped ? options.early_b : options.early_a),
                               overlap && (swapped ? options.early_a : options.early_b)};
  return {fmt::format("wgmma_split{}_{}x{}_{}stages{}", split, Tile::kM, Tile::kN, Tile::kStages,
                      swapped ? "_swap" : ""),
          [=](cudaStream_t stream) {
            LaunchConfig launch(grid, Tile::kThreads, Tile::smem_bytes(split), split, overlap);
            const cudaLaunchConfig_t config = launch.on(stream);
            check_gemm_call(cudaLaunchKernelEx(&config, kernel, map_a, map_b, parted, stages,
                                               groups, early, out, epilogue),
                            "launch", m, n, k);
          }};
}

}  // namespace ridgeline::cuda
