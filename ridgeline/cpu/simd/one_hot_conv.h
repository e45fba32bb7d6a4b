#pragma once

#include <cstdint>

#include "ridgeline/core/thread_pool.h"

namespace ridgeline::cpu::simd {

// Functions of the one_hot_conv1d kernels. Channels are processed in blocks of kOneHotBlock; a
// table holds, block by block, the weights (or their gradient) as rows of one block of channels:
//   table[block, tap, code, kOneHotBlock], codes from 0 to symbols, the last of which is zero.
inline constexpr int64_t kOneHotBlock = 16;

struct OneHotShape {
  int64_t n = 0, length = 0, symbols = 0, out = 0, kernel = 0;

  int64_t steps() const { return length - kernel + 1; }
  int64_t blocks() const { return (out + kOneHotBlock - 1) / kOneHotBlock; }
  int64_t table_rows() const { return kernel * (symbols + 1); }        // of one block
  int64_t table_block() const { return table_rows() * kOneHotBlock; }  // elements of one block
};

// The first block of a character network: the convolution, normalised over each sample with a gamma
// and beta per number, relu, and a max pool of three positions.
template <typename T>
struct OneHotBlockArgs {
  OneHotShape shape;
  const int32_t* token;
  const T *table, *bias;  // bias may be null
  const T *gamma, *beta;  // as rows of channels: [block, step, kOneHotBlock]
  T epsilon;
  T* y;                        // [n, out, steps / 3], or
  bool rows = false;           // [n, steps / 3, out], out in blocks
  uint16_t* halves = nullptr;  // instead of y, with rows: as bits of bf16 (T: float)
};

template <typename T>
struct OneHotFunctions {
  // Computes y[i, o, t] for the (sample, block of channels) pairs [begin, end) of n * blocks().
  void (*forward)(const OneHotShape& shape, const int32_t* token, const T* table, const T* bias,
                  T* y, Range pairs);
  // Computes the gradient's table and, unless null, db, for blocks [begin, end) of channels.
  void (*grad)(const OneHotShape& shape, const int32_t* token, const T* dy, T* table, T* db,
               Range blocks);
  // Computes samples [begin, end) of y; `rows` holds a sample's convolution, [block, step,
  // kOneHotBlock].
  void (*block)(const OneHotBlockArgs<T>& args, T* rows, Range samples);
};

template <typename T>
const OneHotFunctions<T>& one_hot_functions();

}  // namespace ridgeline::cpu::simd
