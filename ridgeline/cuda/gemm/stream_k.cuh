#pragma once

#include <cstdint>

#include "ridgeline/cuda/device/mbarrier.cuh"

// How the blocks of a persistent product share out its tiles: whole tiles in turns, or, for
// stream-K, of the tiles of the last wave and a half equal parts of all their stages of k, laid end
// to end. A part may begin or end inside a tile. The block that has a tile's first stage finishes
// the tile: it adds, in order, what the blocks after it left of their parts.
namespace ridgeline::cuda {

struct TileSegment {
  int tile, first, end;  // stages of k
};

// The stages that block `block` of `blocks` has of `all`.
struct StreamRange {
  int64_t begin, end;

  __device__ StreamRange(int block, int blocks, int64_t all)
      : begin(all * block / blocks), end(all * (block + 1) / blocks) {}
};

template <bool kStream>
class TileWalk {
 public:
  // Of `blocks` walkers this is number `block`.
  __device__ TileWalk(int block, int blocks, int tiles, int k_stages)
      : blocks_(blocks), tiles_(tiles), k_stages_(k_stages), next_tile_(block) {
    if constexpr (kStream) {
      // Whole waves but for the last remain whole tiles: fewer parts to add.
      shared_ = tiles % blocks + (tiles >= blocks ? blocks : 0);
      if (shared_ == blocks) shared_ = 0;  // it comes out even
      const StreamRange range(block, blocks, int64_t(shared_) * k_stages);
      at_ = range.begin, end_ = range.end;
      next_tile_ += shared_;
    }
  }

  __device__ bool next(TileSegment& segment) {
    if constexpr (kStream) {
      if (at_ < end_) {
        segment.tile = int(at_ / k_stages_);
        segment.first = int(at_ % k_stages_);
        segment.end = int(min(int64_t(k_stages_), segment.first + (end_ - at_)));
        at_ += segment.end - segment.first;
        return true;
      }
    }
    if (next_tile_ >= tiles_) return false;
    segment = {next_tile_, 0, k_stages_};
    next_tile_ += blocks_;
    return true;
  }

  // The stage of a tile where block `block`, which has some of it, stops.
  __device__ int end_of(int block, int tile) const {
    const StreamRange range(block, blocks_, int64_t(shared_) * k_stages_);
    return int(min(int64_t(k_stages_), range.end - int64_t(tile) * k_stages_));
  }

 private:
  int blocks_, tiles_, k_stages_;
  int shared_ = 0;  // tiles that are parted
  int next_tile_;
  int64_t at_ = 0, end_ = 0;
};

// Parts in memory: one of kFloats a block and consumer, in the order of its threads' registers, and
// a flag beside it that is 0 when nothing waits there.
struct StreamParts {
  float* partial = nullptr;
  unsigned* flags = nullptr;
};

template <int kConsumers, int kFloats>
class PartExchange {
 public:
  __device__ PartExchange(const StreamParts& parts, int consumer, int thread)
      : parts_(parts), consumer_(consumer), thread_(thread) {}

  template <int kBlocks, int kCount>
  __device__ void leave(int block, const float (&acc)[kBlocks][kCount]) const {
    float4* to = slot(block);
#pragma unroll
    for (int i = 0; i < kBlocks * kCount / 4; ++i) {
      const float* v = &acc[i * 4 / kCount][i * 4 % kCount];
      to[i * 128] = make_float4(v[0], v[1], v[2], v[3]);
    }
    __threadfence();
    named_barrier(1 + consumer_, 128);
    if (thread_ == 0) {
      asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flag(block)) : "memory");
    }
  }

  template <int kBlocks, int kCount>
  __device__ void add(int block, float (&acc)[kBlocks][kCount]) const {
    if (thread_ == 0) {
      unsigned there;
      do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                     : "=r"(there)
                     : "l"(flag(block))
                     : "memory");
      } while (there == 0);
    }
    named_barrier(1 + consumer_, 128);
    const float4* from = slot(block);
#pragma unroll
    for (int i = 0; i < kBlocks * kCount / 4; ++i) {
      const float4 v = __ldcg(from + i * 128);
      float* sum = &acc[i * 4 / kCount][i * 4 % kCount];
      sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
    }
    named_barrier(1 + consumer_, 128);
    if (thread_ == 0) *flag(block) = 0;
  }

 private:
  __device__ float4* slot(int block) const {
    return reinterpret_cast<float4*>(parts_.partial +
                                     int64_t(block * kConsumers + consumer_) * kFloats) +
           thread_;
  }
  __device__ unsigned* flag(int block) const {
    return parts_.flags + block * kConsumers + consumer_;
  }

  StreamParts parts_;
  int consumer_, thread_;
};

}  // namespace ridgeline::cuda
