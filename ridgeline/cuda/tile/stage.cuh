#pragma once

#include <cstdint>

#include "ridgeline/cuda/device/async_copy.cuh"

// One operand's stage of the pipeline in shared memory, and the copies that fill it.
namespace ridgeline::cuda::tile {

// Which index of an operand [rows, k] is contiguous, in global and in shared memory.
enum class Order { k, rows };

// Element (row, depth) of a stage is at at(row, depth). The math chooses kPitch so that its reads
// have no bank conflicts. kSwizzle: depth is in groups of eight 16-byte units, whose halves are
// exchanged in odd rows.
template <typename Element, int kRowCount, int kDepthCount, Order kStageOrder, int kStagePitch,
          bool kSwizzled = false>
struct Stage {
  using T = Element;
  static constexpr int kRows = kRowCount, kDepth = kDepthCount, kPitch = kStagePitch;
  static constexpr Order kOrder = kStageOrder;
  static constexpr bool kSwizzle = kSwizzled;
  static constexpr int kSize = (kOrder == Order::k ? kRows : kDepth) * kPitch;
  static_assert(!kSwizzle || (kOrder == Order::k && kDepth % 32 == 0 && kPitch == kDepth));
  static_assert(kPitch * sizeof(T) % 16 == 0);

  static __device__ int at(int row, int depth) {
    if constexpr (kOrder == Order::rows) return depth * kPitch + row;
    if constexpr (kSwizzle) return row * kPitch + (depth ^ ((row & 1) << 4));
    return row * kPitch + depth;
  }
};

// Copies one operand stage by stage, from `depth` on. p is its first element, with rows `pitch`
// elements apart (or depths, if rows are contiguous). wide: copies 16 bytes at a time, for which p
// and the pitch must be aligned; otherwise element by element.
template <typename S, int kThreads>
class StageCopy {
  using T = typename S::T;
  static constexpr bool kAlongK = S::kOrder == Order::k;
  static constexpr int kChunk = 16 / int(sizeof(T));
  // Chunks along the contiguous index; a thread's chunks are kStep apart along the other.
  static constexpr int kAlong = (kAlongK ? S::kDepth : S::kRows) / kChunk;
  static constexpr int kStep = kThreads / kAlong;
  static constexpr int kAcross = kAlongK ? S::kRows : S::kDepth;
  static constexpr int kCopies = kAcross / kStep;
  static_assert(kThreads % kAlong == 0 && kCopies * kStep == kAcross);
  static_assert(!S::kSwizzle || kStep % 2 == 0);  // a thread's rows are all odd, or all even

 public:
  __device__ StageCopy(const T* p, int64_t pitch, int row0, int rows, int depth, int depths,
                       bool wide)
      : pitch_(pitch), left_(depths - depth), rows_(rows - row0), wide_(wide) {
    tile_ = p + (kAlongK ? int64_t(row0) * pitch : int64_t(row0));
    mine_ = tile_ + (kAlongK ? int64_t(depth) : int64_t(depth) * pitch) +
            int64_t(across()) * pitch + along();
    to_ = uint32_t(sizeof(T)) *
          uint32_t(kAlongK ? S::at(across(), along()) : S::at(along(), across()));
  }

  // Copies the next stage to this shared-memory address; every thread of the block takes part.
  __device__ void next(uint32_t stage) {
    if (wide_ && rows_ >= S::kRows && left_ >= S::kDepth) {
      copy_whole(stage + to_);
    } else {
      copy_part(stage);
    }
    const int64_t step = kAlongK ? S::kDepth : S::kDepth * pitch_;
    mine_ += step;
    left_ -= S::kDepth;
  }

 private:
  static __device__ int along() { return int(threadIdx.x) % kAlong * kChunk; }
  static __device__ int across() { return int(threadIdx.x) / kAlong; }

  // No chunk crosses an extent. A thread's chunks are a constant distance apart in both memories.
  __device__ void copy_whole(uint32_t to) const {
    const T* from = mine_;
    const int64_t step = kStep * pitch_;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      copy_async_16(to + uint32_t(i * kStep * S::kPitch * int(sizeof(T))), from);
      from += step;
    }
  }

  __device__ void copy_part(uint32_t stage) const {
    if (!wide_) return copy_narrow(stage);
    // Which elements of the chunk exist, and how many of `across` do.
    const int inside = (kAlongK ? left_ : rows_) - along();
    const int bytes = min(max(inside, 0), kChunk) * int(sizeof(T));
    const int limit = kAlongK ? rows_ : left_;
#pragma unroll 1
    for (int i = 0; i < kCopies; ++i) {
      const int other = across() + i * kStep;
      const bool there = other < limit && bytes > 0;
      copy_async_or_zero<16>(stage + to_ + uint32_t(i * kStep * S::kPitch * int(sizeof(T))),
                             there ? mine_ + int64_t(i * kStep) * pitch_ : tile_,
                             there ? bytes : 0);
    }
  }

  __device__ void copy_narrow(uint32_t stage) const {
    const T* base = mine_ - (int64_t(across()) * pitch_ + along());
#pragma unroll 1
    for (int i = int(threadIdx.x); i < S::kRows * S::kDepth; i += kThreads) {
      const int row = kAlongK ? i / S::kDepth : i % S::kRows;
      const int depth = kAlongK ? i % S::kDepth : i / S::kRows;
      const bool there = row < rows_ && depth < left_;
      const int64_t from = kAlongK ? row * pitch_ + depth : depth * pitch_ + row;
      copy_async_or_zero<int(sizeof(T))>(stage + uint32_t(S::at(row, depth)) * uint32_t(sizeof(T)),
                                         there ? base + from : tile_, there ? int(sizeof(T)) : 0);
    }
  }

  const T *tile_, *mine_;  // a valid address, and this thread's first of the stage
  int64_t pitch_;
  uint32_t to_;  // this thread's first byte of a stage
  int left_;     // depths from this stage on
  int rows_;     // of the operand, from the tile's first row on
  bool wide_;
};

}  // namespace ridgeline::cuda::tile
