#pragma once

#include "ridgeline/cuda/device/mma.cuh"
#include "ridgeline/cuda/device/wgmma.cuh"

// Operands that are loaded from global memory straight into the registers of mma.sync, for products
// so small that start-up dominates: no TMA, no barrier, and nothing before the first load.
namespace ridgeline::cuda {

// Loads kBytes (4, 8 or 16) at p, or returns zeros. These are ordinary loads, because read-only
// loads (__ldg) may be moved before the wait for the launch that writes the memory.
template <int kBytes>
__device__ inline void load_words(uint32_t* to, const void* p, bool there) {
  if constexpr (kBytes == 16) {
    const uint4 v = there ? *static_cast<const uint4*>(p) : uint4{};
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  } else if constexpr (kBytes == 8) {
    const uint2 v = there ? *static_cast<const uint2*>(p) : uint2{};
    to[0] = v.x, to[1] = v.y;
  } else {
    to[0] = there ? *static_cast<const uint32_t*>(p) : 0;
  }
}

// An operand of `lines` lines: rows of A, columns of B.
template <typename T>
struct DirectOperand {
  const T* data;
  int64_t pitch;
  int lines;
};

// kLines lines by 32 * kQuads of k of an operand, in a warp's registers. Lane 4 g + t holds lines
// line_of(g) .. line_of(g) + kEach - 1 and, of each 32 of k, 8 t .. 8 t + 7. The order of k within
// a product is free as long as both operands agree, so it is chosen for wide loads. The order of
// lines is chosen for wide stores: a result's columns are line_of(2 t), line_of(2 t + 1) and those
// that follow each.
template <typename T, Major kMajor, int kLines, int kQuads>
struct Fragments {
  static constexpr int kEach = kLines / 8;
  static constexpr int kDepth = 32 * kQuads;
  uint32_t word[kLines * kQuads / 2];

  static __device__ int line_of(int g) { return kEach * (g / 2 + g % 2 * 4); }

  __device__ void load(const DirectOperand<T>& from, int depth, int line0, int k0) {
    const int line = line0 + line_of(threadIdx.x % 32 / 4), k = k0 + 8 * (threadIdx.x % 4);
    if constexpr (kMajor == Major::k) {
#pragma unroll
      for (int i = 0; i < kEach * kQuads; ++i) {
        const int l = line + i / kQuads, at = k + 32 * (i % kQuads);
        load_words<16>(word + i * 4, from.data + l * from.pitch + at, l < from.lines && at < depth);
      }
    } else {
#pragma unroll
      for (int i = 0; i < 8 * kQuads; ++i) {
        const int at = k + i / 8 * 32 + i % 8;
        load_words<2 * kEach>(word + i * (kEach / 2), from.data + at * from.pitch + line,
                              line < from.lines && at < depth);
      }
    }
  }
  // The first or second pair of k of this lane's l-th line, for step s of 16.
  __device__ uint32_t pair(int l, int s, int half) const {
    if constexpr (kMajor == Major::k) {
      return word[(l * kQuads + s / 2) * 4 + s % 2 * 2 + half];
    } else {
      const int at = (s * 4 + half * 2) * (kEach / 2) + l / 2;
      return __byte_perm(word[at], word[at + kEach / 2], l % 2 == 0 ? 0x5410 : 0x7632);
    }
  }
};

// Whether a warp's fragments can use wide loads: 16 bytes along k, or all of a lane's lines.
template <typename T, Major kMajor>
bool direct_accepts(const void* data, int64_t pitch, int lines, int depth) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && pitch % 8 == 0 &&
         (kMajor == Major::k ? depth : lines) % 8 == 0 && sizeof(T) == 2;
}

// acc[i][j] += lines 2 i, 2 i + 1 of a times line j of b.
template <typename T, typename A, typename B, int kI, int kJ>
__device__ inline void multiply_fragments(float (&acc)[kI][kJ][4], const A& a, const B& b) {
  static_assert(A::kDepth == B::kDepth);
#pragma unroll
  for (int s = 0; s < A::kDepth / 16; ++s) {
    uint32_t rows[kI][4];
#pragma unroll
    for (int i = 0; i < kI; ++i) {
      rows[i][0] = a.pair(2 * i, s, 0), rows[i][1] = a.pair(2 * i + 1, s, 0);
      rows[i][2] = a.pair(2 * i, s, 1), rows[i][3] = a.pair(2 * i + 1, s, 1);
    }
#pragma unroll
    for (int j = 0; j < kJ; ++j) {
      const uint32_t b0 = b.pair(j, s, 0), b1 = b.pair(j, s, 1);
#pragma unroll
      for (int i = 0; i < kI; ++i) mma_m16n8k16<T>(acc[i][j], rows[i], b0, b1);
    }
  }
}

}  // namespace ridgeline::cuda
