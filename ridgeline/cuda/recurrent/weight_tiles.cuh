#pragma once

#include <cstdint>

#include "ridgeline/cuda/device/async_copy.cuh"
#include "ridgeline/cuda/device/shared_matrix.cuh"

// How the warpgroup products load their weights before the first timestep: in tiles of 64 rows by
// 64 places, in the layout that wgmma reads from shared memory. Every launch does this and mostly
// waits for memory, so all loads are in flight at once.
namespace ridgeline::cuda::recurrent {

constexpr int kWeightTile = 64, kWeightTileWords = kWeightTile * 8;  // uint4s

// Returns whether all rows of a matrix start at multiples of 16 bytes.
template <typename T>
__device__ inline bool aligned_rows(const T* first, int width) {
  return width * sizeof(T) % 16 == 0 && reinterpret_cast<uintptr_t>(first) % 16 == 0;
}

// The contiguous lines of a tile: the places of a row, or (backward) the rows at a place. There are
// `count` values, none if it is below 1, and zeros follow.
template <typename T>
struct WeightLine {
  static_assert(sizeof(T) == 2);
  const T* at;
  int count;

  __device__ void prefetch() const {
    if (count > 0) asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
  }
  // Copies eight of them to shared memory; asynchronously if lines are `aligned`.
  __device__ void copy_vec8(int vec8, uint4* to, bool aligned) const {
    const int left = count - 8 * vec8;
    if (aligned) {
      const int bytes = left <= 0 ? 0 : left < 8 ? 2 * left : 16;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                   "l"(left > 0 ? at + 8 * vec8 : at), "r"(bytes)
                   : "memory");
      return;
    }
    uint32_t words[4] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i >= left) break;
      words[i / 2] |= uint32_t(reinterpret_cast<const uint16_t*>(at)[8 * vec8 + i]) << i % 2 * 16;
    }
    *to = uint4{words[0], words[1], words[2], words[3]};
  }
};

// The threads of a warpgroup copy their share of a tile; line_of(line) returns its lines. The vec8s
// of a line are swizzled by its index, as wgmma expects them.
template <typename LineOf>
__device__ inline void copy_weight_tile(uint4* tile, const LineOf& line_of, bool aligned) {
#pragma unroll
  for (int i = 0; i < kWeightTileWords / 128; ++i) {
    const int word = int(threadIdx.x) % 128 + 128 * i, line = word / 8, vec8 = word % 8;
    line_of(line).copy_vec8(vec8, tile + line * 8 + ((vec8 ^ line) & 7), aligned);
  }
}

// Loads the left factors of the four products of a tile into registers for wgmma. kTransposed:
// lines belong to places.
template <bool kTransposed>
__device__ inline void load_weight_tile(const uint4* tile, uint32_t (&a)[4][4]) {
  const int warp = int(threadIdx.x) / 32 % 4, i = int(threadIdx.x) / 8 % 4, in = threadIdx.x % 8;
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    // Matrix i has eight rows, the first or second eight of the warp's, and eight places.
    const int line = kTransposed ? 16 * s + i / 2 * 8 + in : 16 * warp + i % 2 * 8 + in;
    const int vec8 = kTransposed ? 2 * warp + i % 2 : 2 * s + i / 2;
    const uint32_t address = shared_address(tile + line * 8 + ((vec8 ^ line) & 7));
    if constexpr (kTransposed) {
      load_matrices_transposed(a[s], address);
    } else {
      load_matrices(a[s], address);
    }
  }
}

// A warpgroup copies kTiles tiles; line_of(tile, line) returns their lines. `barrier` is a named
// barrier of the warpgroup. The loop is not unrolled: code that runs once has to be fetched from
// memory too.
template <int kTiles, typename TileAt, typename LineOf>
__device__ inline void bring_weight_tiles(const TileAt& tile_at, int barrier, const LineOf& line_of,
                                          bool aligned) {
#pragma unroll 1
  for (int tile = 0; tile < kTiles; ++tile) {
    copy_weight_tile(
        tile_at(tile), [&](int line) { return line_of(tile, line); }, aligned);
  }
  copy_async_commit();
  copy_async_wait<0>();
  named_barrier(barrier, 128);
}

// Loads them into registers; their memory is then free.
template <bool kTransposed, int kTiles, typename TileAt>
__device__ inline void hold_weight_tiles(const TileAt& tile_at, int barrier,
                                         uint32_t (&a)[kTiles][4][4]) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) load_weight_tile<kTransposed>(tile_at(tile), a[tile]);
  named_barrier(barrier, 128);
}

}  // namespace ridgeline::cuda::recurrent
