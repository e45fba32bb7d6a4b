#pragma once

#include <cstddef>
#include <cstdint>

#include "ridgeline/cpu/simd/gemm.h"

// Convolutions without im2col: stride 1, no dilation, one group. Vectors run along the pixels of
// the padded image, row after row, so that no width leaves a remainder; the values between the rows
// of outputs are computed and dropped. Sums of a few output channels by a few vectors of pixels
// stay in registers over all taps.
namespace ridgeline::cpu::simd {

struct DirectShape {
  int64_t c, h, w;  // in, without padding
  int64_t k;        // output channels
  int64_t kernel_h, kernel_w;
  int64_t pad_h, pad_w;
  bool pooled;  // a max pool of 2 x 2 follows; its activation must not decrease

  int64_t padded_h() const { return h + 2 * pad_h; }
  int64_t pitch() const { return w + 2 * pad_w; }
  int64_t out_h() const { return padded_h() - kernel_h + 1; }
  int64_t out_w() const { return pitch() - kernel_w + 1; }
};

// Output channels whose sums are in registers together.
inline constexpr int64_t kDirectBlock = 6;

// Elements of scratch: the filters in the kernels' layout (one for all threads), and each thread's
// own (the padded image, and the sums of two rows).
size_t direct_filter_elements(const DirectShape& shape);
// The distance between the sums of two channels: two rows, and space for vectors that reach past
// their end.
template <typename T>
int64_t direct_sums_ld(const DirectShape& shape) {
  return (2 * shape.pitch() + 2 * kPanel<T>) / kGroup<T> * kGroup<T>;
}
template <typename T>
size_t direct_thread_elements(const DirectShape& shape) {
  const int64_t image = shape.c * shape.padded_h() * shape.pitch() + 2 * kPanel<T>;
  return size_t((image + kGroup<T> - 1) / kGroup<T> * kGroup<T> +
                kDirectBlock * direct_sums_ld<T>(shape));
}

template <typename T>
struct DirectArgs {
  DirectShape shape;
  const T* filters;  // by arrange_filters
  const T* bias;     // [k], may be null
  SimdActivation act;
};

// The first channel and the count of each block: as even as possible, kDirectBlock at most.
constexpr int64_t direct_blocks(int64_t k) { return (k + kDirectBlock - 1) / kDirectBlock; }
constexpr Range direct_block(int64_t k, int64_t block) {
  return {k * block / direct_blocks(k), k * (block + 1) / direct_blocks(k)};
}

// filters: [block][c, kernel_h, kernel_w][channels of the block], from w[k, c, kernel_h, kernel_w].
// With `flipped`, w is [c, k, kernel_h, kernel_w] and its taps are read in reverse order: the
// convolution then maps the gradient of an output to that of its input.
template <typename T>
void arrange_filters(const DirectShape& shape, const T* w, bool flipped, T* filters);

template <typename T>
struct DirectFunctions {
  // Maps one image x[c, h, w] to y[k, out_h, out_w], or half of both with a pool.
  void (*image)(const DirectArgs<T>& args, const T* x, T* y, T* scratch);
  // The max pool of 2 x 2 of x[h, w].
  void (*pool)(const T* x, int64_t h, int64_t w, T* y);
};
template <typename T>
const DirectFunctions<T>& direct_functions();

}  // namespace ridgeline::cpu::simd
