#pragma once

#include <type_traits>

#include "ridgeline/cuda/device/async_copy.cuh"
#include "ridgeline/cuda/tile/math.cuh"

namespace ridgeline::cuda::tile {

// D[m, n] = sum over k of A[m, k] B[n, k]; the math decides which index is contiguous.
template <typename T>
struct Operands {
  const T* a = nullptr;
  int64_t a_pitch = 0;
  const T* b = nullptr;
  int64_t b_pitch = 0;
  int m = 0, n = 0, k = 0;
  bool sum_rows = false;                // also the sum over k of A
  bool a_wide = false, b_wide = false;  // may be copied in units of 16 bytes
  // If blocks share tiles: two slots of partial sums per block, two counters per tile.
  T* partial = nullptr;
  unsigned* counters = nullptr;
};

template <typename T>
struct alignas(16) Vector {
  static constexpr int kCount = 16 / int(sizeof(T));
  T values[kCount];
};

// A barrier of the blocks that share a tile: each has written its partial sums before any reads
// them. Blocks are launched cooperatively, so all of them run. The last to leave resets the
// counters.
class Meeting {
 public:
  __device__ Meeting(unsigned* counters, int tile)
      : arrived_(counters + 2 * tile), left_(counters + 2 * tile + 1) {}

  __device__ void arrive() const {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived_) : "memory");
    }
  }
  __device__ void wait(int blocks) const {
    if (threadIdx.x == 0) {
      unsigned seen;
      do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived_) : "memory");
      } while (seen < unsigned(blocks));
    }
    __syncthreads();
  }
  __device__ void leave(int blocks) const {
    if (threadIdx.x == 0 && atomicAdd(left_, 1u) == unsigned(blocks) - 1) {
      *arrived_ = 0;
      *left_ = 0;
    }
  }

 private:
  unsigned *arrived_, *left_;
};

// Distributes the steps of all tiles, one tile after the other, evenly over the blocks (stream-K).
// With as many blocks as tiles, each block gets one tile.
struct Shares {
  int steps;      // per tile
  int64_t total;  // of all tiles

  __device__ Shares(int tile_steps, int tiles)
      : steps(tile_steps), total(int64_t(tile_steps) * tiles) {}

  __device__ int64_t begin(int block) const { return total * block / gridDim.x; }
  __device__ int block_of(int64_t step) const {
    int block = int(step * gridDim.x / total);
    while (begin(block) > step) --block;
    while (begin(block + 1) <= step) ++block;
    return block;
  }
};

// A block's sums over some steps of a tile.
template <typename Math, typename S, bool kSumRows>
struct BlockProduct {
  using T = typename Math::T;
  using StageA = typename Math::StageA;
  using StageB = typename Math::StageB;
  static constexpr int kStageSize = StageA::kSize + StageB::kSize;
  static constexpr size_t kSharedBytes = size_t(S::kStages) * kStageSize * sizeof(T);

  Math math;
  T row_sum = T(0);  // of row threadIdx.x of the tile, if kSumRows

  // Fragments are read one step ahead of their products, also across the ends of stages, so that
  // products hide the cost of a barrier and of the reads after it. meanwhile() runs while the first
  // stages are in flight.
  template <typename F>
  __device__ void run(const Operands<T>& p, int row0, int col0, int first, int last, T* stages,
                      F meanwhile) {
    StageCopy<StageA, Math::kThreads> a(p.a, p.a_pitch, row0, p.m, first * S::kDepth, p.k,
                                        p.a_wide);
    StageCopy<StageB, Math::kThreads> b(p.b, p.b_pitch, col0, p.n, first * S::kDepth, p.k,
                                        p.b_wide);
    const bool sums_rows = kSumRows && p.sum_rows && col0 == 0 && threadIdx.x < S::kM;
    const uint32_t base = shared_address(stages);
    int fetched = first, fetch_slot = 0, slot = 0;
    const auto fetch = [&] {
      if (fetched < last) {
        const uint32_t stage = base + uint32_t(fetch_slot * kStageSize * int(sizeof(T)));
        a.next(stage);
        b.next(stage + uint32_t(StageA::kSize * int(sizeof(T))));
      }
      ++fetched;
      fetch_slot = fetch_slot + 1 == S::kStages ? 0 : fetch_slot + 1;
      copy_async_commit();
    };
#pragma unroll 1
    for (int i = 0; i < S::kStages - 1; ++i) fetch();
    meanwhile();
    copy_async_wait<S::kStages - 2>();
    __syncthreads();
    typename Math::Fragment now, next;
    Math::read(now, stages, stages + StageA::kSize, 0);
#pragma unroll 1
    for (int step = first; step < last; ++step) {
      const T* stage = stages + slot * kStageSize;
#pragma unroll
      for (int block = 0; block < Math::kBlocks; ++block) {
        const bool ends = block + 1 == Math::kBlocks;
        if (ends) {
          copy_async_wait<S::kStages - 2>();
          __syncthreads();  // the next stage is ready for all threads, and all have read this one
          slot = slot + 1 == S::kStages ? 0 : slot + 1;
          stage = stages + slot * kStageSize;
        }
        Math::read(next, stage, stage + StageA::kSize, ends ? 0 : block + 1);
        if (block == 0) {
          fetch();  // into the slot of the stage before this one
          if (sums_rows) {
#pragma unroll 4
            for (int d = 0; d < S::kDepth; ++d) row_sum += stage[StageA::at(int(threadIdx.x), d)];
          }
        }
        math.multiply(now);
        now = next;
      }
      math.end_stage();
    }
    __syncthreads();  // the stages may be reused
  }
};

// Each sum is passed to the functor of the epilogue's visit(). If its kSumRows and the operands
// request it, the sum over k of A[row, k] is passed to its row_sum(row, sum). Its meanwhile() runs
// once per block, while the block waits for its first stages; its leave() is the last thing a block
// does.
template <typename Math, typename S, typename Epilogue>
__global__ void __launch_bounds__(Math::kThreads, S::kBlocks)
    gemm_tile_kernel(Operands<typename Math::T> p, Epilogue epilogue) {
#if __CUDA_ARCH__ >= 800
  using T = typename Math::T;
  constexpr bool kSumRows = Epilogue::kSumRows;
  using Vec = Vector<T>;
  static_assert(!kSumRows || Math::kThreads >= S::kM);
  constexpr int kVectors = Math::kSums / Vec::kCount;
  constexpr int64_t kSlot = Math::kSums * Math::kThreads + S::kM;
  extern __shared__ __align__(16) unsigned char tile_memory[];

  const int tiles_n = (p.n + S::kN - 1) / S::kN, tiles_m = (p.m + S::kM - 1) / S::kM;
  const Shares shares((p.k + S::kDepth - 1) / S::kDepth, tiles_m * tiles_n);
  const int block = int(blockIdx.x);
  const int64_t begin = shares.begin(block), end = shares.begin(block + 1);
  const auto row_of = [&](int tile) { return tile / tiles_n * S::kM; };
  const auto col_of = [&](int tile) { return tile % tiles_n * S::kN; };
  const auto sums_row = [&](int tile) {
    return kSumRows && p.sum_rows && col_of(tile) == 0 && threadIdx.x < S::kM &&
           row_of(tile) + int(threadIdx.x) < p.m;
  };
  // Vectors `from` to `to` of this thread's sums of a tile, four or eight at once, so that their
  // memory accesses overlap: fill(sums, vector) sets those from `vector` on, the last ones possibly
  // beyond `to`.
  constexpr int kAtOnce = 16 / Vec::kCount;
  static_assert(kVectors % kAtOnce == 0);
  const auto finish = [&](int tile, int from, int to, const auto& result, const auto& fill) {
    const int row0 = row_of(tile), col0 = col_of(tile);
#pragma unroll 1
    for (int v = from; v < to; v += kAtOnce) {
      Vec sums[kAtOnce] = {};
      fill(sums, v);
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const Place at = Math::place(v * Vec::kCount + i);
        const int row = row0 + at.row, col = col0 + at.col;
        if (v + i / Vec::kCount < to && row < p.m && col < p.n) {
          result(row, col, sums[i / Vec::kCount].values[i % Vec::kCount]);
        }
      }
    }
  };

  for (int64_t at = begin; at < end;) {
    const int tile = int(at / shares.steps), first = int(at % shares.steps);
    const int last = int(min(int64_t(shares.steps), first + (end - at)));
    BlockProduct<Math, S, kSumRows> product;
    product.run(p, row_of(tile), col_of(tile), first, last, reinterpret_cast<T*>(tile_memory), [&] {
      if (at == begin) epilogue.meanwhile();
    });
    if (last - first == shares.steps) {
      Vec parked[kVectors];  // in local memory, so that the epilogue's code need not be unrolled
#pragma unroll
      for (int i = 0; i < Math::kSums; ++i) {
        parked[i / Vec::kCount].values[i % Vec::kCount] = T(product.math.at(i));
      }
      epilogue.visit([&](const auto& result) {
        finish(tile, 0, kVectors, result, [&](Vec(&sums)[kAtOnce], int v) {
#pragma unroll
          for (int i = 0; i < kAtOnce; ++i) sums[i] = parked[v + i];
        });
        if constexpr (kSumRows) {
          if (sums_row(tile)) result.row_sum(row_of(tile) + int(threadIdx.x), product.row_sum);
        }
      });
    } else {
      T* slot = p.partial + (2 * block + (at == begin ? 0 : 1)) * kSlot;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        Vec sums;
#pragma unroll
        for (int e = 0; e < Vec::kCount; ++e) {
          sums.values[e] = T(product.math.at(v * Vec::kCount + e));
        }
        reinterpret_cast<Vec*>(slot)[v * Math::kThreads + threadIdx.x] = sums;
      }
      if constexpr (kSumRows) {
        if (sums_row(tile)) {
          slot[Math::kSums * Math::kThreads + threadIdx.x] = product.row_sum;
        }
      }
      Meeting(p.counters, tile).arrive();
    }
    at += last - first;
  }

  // The tiles that this block shares with others: its first, its last, both or none.
  for (int64_t at = begin; at < end;) {
    const int tile = int(at / shares.steps);
    const int64_t tile_begin = int64_t(tile) * shares.steps, tile_end = tile_begin + shares.steps;
    if (at > tile_begin || end < tile_end) {
      const int lowest = shares.block_of(tile_begin), highest = shares.block_of(tile_end - 1);
      const int sharers = highest - lowest + 1, mine = block - lowest;
      const Meeting meeting(p.counters, tile);
      meeting.wait(sharers);
      // Only the lowest block can have begun with another tile.
      const bool lowest_second = shares.begin(lowest) < tile_begin;
      const auto slot_of = [&](int sharer) {
        return p.partial + (2 * (lowest + sharer) + (sharer == 0 && lowest_second ? 1 : 0)) * kSlot;
      };
      epilogue.visit([&](const auto& result) {
        const int from = kVectors * mine / sharers, to = kVectors * (mine + 1) / sharers;
        finish(tile, from, to, result, [&](Vec(&sums)[kAtOnce], int v) {
          for (int s = 0; s < sharers; ++s) {
            const auto* slot = reinterpret_cast<const float4*>(slot_of(s)) + threadIdx.x;
            float4 bits[kAtOnce];
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
              bits[i] = __ldcg(slot + min(v + i, kVectors - 1) * Math::kThreads);
            }
#pragma unroll
            for (int i = 0; i < 16; ++i) {
              const Vec& part = reinterpret_cast<const Vec&>(bits[i / Vec::kCount]);
              sums[i / Vec::kCount].values[i % Vec::kCount] += part.values[i % Vec::kCount];
            }
          }
        });
        if constexpr (kSumRows) {
          if (mine == 0 && sums_row(tile)) {
            T sum = T(0);
            for (int s = 0; s < sharers; ++s) {
              sum += __ldcg(slot_of(s) + Math::kSums * Math::kThreads + threadIdx.x);
            }
            result.row_sum(row_of(tile) + int(threadIdx.x), sum);
          }
        }
      });
      meeting.leave(sharers);
    }
    at = min(tile_end, end);
  }
  epilogue.leave();
#endif
}

}  // namespace ridgeline::cuda::tile
