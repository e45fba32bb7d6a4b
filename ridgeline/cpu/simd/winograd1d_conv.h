#pragma once

#include <cstdint>

#include "ridgeline/core/thread_pool.h"

// 1-D convolutions over rows of channels with fewer multiplications (Toom, Cook, Winograd): a tile
// of m = 9 - kernel neighbouring outputs depends on 8 inputs, and follows from 8 products instead
// of m * kernel. With the points p = 0, 1, -1, 2, -2, 1/2, -1/2, infinity:
//   v_p = sum over j < 8 of B[p, j] x[j]        a polynomial's numerator; small exact fractions
//   u_p = sum over k < kernel of p^k w[k] / D(p)
//   y_j = sum over p of p^j * (u_p . v_p over the input channels)
// so each point is a matrix product of its own, [tiles, in] x [in, out], and the transforms before
// and after cost little. Measured against fp64 with 256 channels, the error is 2 times that of the
// direct sum in fp32 for three taps (2.25 times fewer multiplications) and 6 times for seven (1.75
// times fewer): a hundredth of the bound of a sum of so many products.
// A NaN or infinite input makes its whole tile of outputs NaN, also those that do not depend on it.
namespace ridgeline::cpu::simd {

inline constexpr int64_t kWinograd1dPoints = 8;
// Tiles that a thread takes at a time: their v (8 x 48 x 256 floats: 390 KB) stay in the
// second-level cache during the loop over u. A multiple of 3, so that pools do not cross, and of
// 12, the rows of a register tile.
inline constexpr int64_t kWinograd1dTiles = 48;
// Output channels of a panel of u.
inline constexpr int64_t kWinograd1dPanel = 32;

struct Winograd1dShape {
  int64_t n = 0, length = 0, in = 0, out = 0, kernel = 0;
  bool relu = false, pool = false;

  int64_t steps() const { return length - kernel + 1; }
  int64_t results() const { return pool ? steps() / 3 : steps(); }   // positions of y
  int64_t tile() const { return kWinograd1dPoints + 1 - kernel; }    // m
  int64_t tiles() const { return (steps() + tile() - 1) / tile(); }  // of a sample
  // Work is divided into chunks of up to kWinograd1dTiles tiles. With a pool a chunk is a part of
  // one sample; else the tiles of all samples are counted consecutively.
  int64_t sample_chunks() const { return (tiles() + kWinograd1dTiles - 1) / kWinograd1dTiles; }
  int64_t chunks() const {
    return pool ? n * sample_chunks() : (n * tiles() + kWinograd1dTiles - 1) / kWinograd1dTiles;
  }
  int64_t weight_elements() const { return kWinograd1dPoints * in * out; }
  // A thread's scratch: v of a chunk, the products of a panel, one panel of outputs.
  int64_t thread_elements() const {
    return kWinograd1dPoints * kWinograd1dTiles * (in + kWinograd1dPanel) +
           kWinograd1dTiles * tile() * kWinograd1dPanel;
  }
};

struct Winograd1dArgs {
  Winograd1dShape shape;
  const float* x;     // [n, length, in]
  const float* w;     // [out, in, kernel]
  const float* bias;  // [out], may be null
  float* u;           // [out / kWinograd1dPanel, point, in, kWinograd1dPanel]
  float* y;           // [n, results, out]
  // Panels of out that a call computes.
  Range panels{0, shape.out / kWinograd1dPanel};
};

struct Winograd1dFunctions {
  // Computes u of the panels [begin, end) of out.
  void (*weights)(const Winograd1dArgs& args, Range panels);
  // The chunks [begin, end) of y, in the panels of the arguments.
  void (*convolve)(const Winograd1dArgs& args, float* scratch, Range chunks);
};
const Winograd1dFunctions& winograd1d_functions();

}  // namespace ridgeline::cpu::simd
