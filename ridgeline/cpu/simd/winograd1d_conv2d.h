#pragma once

#include <cstddef>
#include <cstdint>

#include "ridgeline/cpu/simd/direct_conv.h"

// 2-D convolutions in fp32 with fewer multiplications along the rows (ops/winograd1d.h): m = 4
// (or 2) neighbouring outputs of a row depend on n = kernel_w + m - 1 inputs, and follow from n
// products for each row of the filter instead of m * kernel_w. The rows of the filter and the
// output channels share the transforms, which therefore cost little. Against fp64 with 12
// channels and 7 x 7 taps the error is 7 times that of the direct sum, a thirtieth of the bound
// of a sum of 588 products; 3/2 for 3/4 makes it 8 times, 4 makes it 15. Tiles of two outputs
// err 3 times as much as the direct sum. A NaN or infinite input makes all outputs of its tiles
// NaN.
namespace ridgeline::cpu::simd {

struct Winograd1dConv2dShape {
  DirectShape conv;
  int64_t outputs = 4;  // of a tile; or 2

  int64_t points() const { return conv.kernel_w + outputs - 1; }
  // The rows and columns of outputs that are needed: a pool ignores an odd one.
  int64_t rows() const { return conv.pooled ? conv.out_h() / 2 * 2 : conv.out_h(); }
  int64_t columns() const { return conv.pooled ? conv.out_w() / 2 * 2 : conv.out_w(); }
  int64_t tiles() const { return (columns() + outputs - 1) / outputs; }  // of a row
  int64_t in_rows() const { return rows() + conv.kernel_h - 1; }
  int64_t results() const {  // of a channel
    return conv.pooled ? rows() / 2 * (columns() / 2) : rows() * columns();
  }

  // Elements of scratch: v of a point over all channels; the sums of a channel at a point; each
  // with space for vectors that reach past the end.
  int64_t point_elements() const { return conv.c * in_rows() * tiles() + kSlack; }
  int64_t sum_elements() const { return (rows() * tiles() + kSlack) / 16 * 16; }
  int64_t row_elements() const { return outputs * (tiles() + kSlack); }
  size_t thread_elements() const;
  size_t filter_elements() const { return size_t(conv.k * conv.c * conv.kernel_h * points()); }

  static constexpr int64_t kSlack = 96;  // six vectors
};

struct Winograd1dConv2dArgs {
  Winograd1dConv2dShape shape;
  const float* filters;  // by `filters`
  const float* bias;     // [k], may be null
  SimdActivation act;
};

// kernel_w must be 3, 5 or 7; 5 or 7 for tiles of two.
struct Winograd1dConv2dFunctions {
  // Computes u of the blocks [begin, end) of output channels (direct_block), from w[k, c, kernel_h,
  // kernel_w]: [block][point][c, kernel_h][channels of the block].
  void (*filters)(const Winograd1dConv2dShape& shape, const float* w, float* u, Range blocks);
  // Maps one image x[c, h, w] to y[k, out_h, out_w], or half of both with a pool.
  void (*image)(const Winograd1dConv2dArgs& args, const float* x, float* y, float* scratch);
};
const Winograd1dConv2dFunctions& winograd1d_conv2d_functions();

}  // namespace ridgeline::cpu::simd
