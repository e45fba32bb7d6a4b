#pragma once

#include <algorithm>
#include <cstdint>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/cpu/simd/layout.h"
#include "ridgeline/cpu/simd/work_stealing.h"

// c = a b + bias for a left operand that is packed once and multiplied by many panels of a batch.
// The depth is processed in blocks, so that those of two panels stay in the first-level cache while
// tiles of the left operand are streamed; partial sums are kept in c. Each call computes a part of
// the result on the calling thread; every element is one sum in a fixed order, however the parts
// are divided.
namespace ridgeline::cpu::simd {

template <typename T>
struct PackedProductArgs {
  const T* a;  // packed, [rows, depth]
  const T* b;  // panel p at b + p * b_stride, [depth][kPanel]
  T* c;        // panel p at c + p * c_stride, [rows][kPanel]
  int64_t b_stride, c_stride;
  int64_t rows, depth;
  const T* bias = nullptr;      // [rows]; null for zeros
  bool add = false;             // adds to c instead of to the bias
  Range columns{0, kPanel<T>};  // of each panel
};

template <typename T>
struct PackedFunctions {
  int64_t (*tile_rows)();
  // Packs tiles of a[row * row_stride + k * depth_stride], with zeros for rows past the end.
  void (*pack)(const T* a, int64_t row_stride, int64_t depth_stride, int64_t rows, int64_t depth,
               T* packed, Range tiles);
  void (*multiply)(const PackedProductArgs<T>&, Range tiles, Range panels);
};

template <typename T>
const PackedFunctions<T>& packed_functions();

template <typename T>
int64_t packed_tiles(int64_t rows) {
  const int64_t tile = packed_functions<T>().tile_rows();
  return (rows + tile - 1) / tile;
}

template <typename T>
size_t packed_elements(int64_t rows, int64_t depth) {
  return size_t(packed_tiles<T>(rows) * packed_functions<T>().tile_rows() * depth);
}

// Computes all of `panels` panels. All threads of a region call it, and steal tasks from one
// another.
template <typename T>
void multiply_stealing(const WorkStealing& work, int thread, int64_t round,
                       const PackedProductArgs<T>& g, int64_t panels) {
  constexpr int64_t kTiles = 16, kPanels = 8;  // of a task
  const int64_t tiles = packed_tiles<T>(g.rows), high = (tiles + kTiles - 1) / kTiles;
  const int64_t wide = (panels + kPanels - 1) / kPanels;
  work.run(thread, round, high * wide, [&](int64_t task) {
    const int64_t i = task / wide * kTiles, j = task % wide * kPanels;
    packed_functions<T>().multiply(g, {i, std::min(i + kTiles, tiles)},
                                   {j, std::min(j + kPanels, panels)});
  });
}

}  // namespace ridgeline::cpu::simd
