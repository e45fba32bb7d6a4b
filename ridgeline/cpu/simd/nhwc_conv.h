#pragma once

#include <cstdint>
#include <vector>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/cpu/simd/gemm.h"
#include "ridgeline/ops/conv.h"
#include "ridgeline/ops/pool.h"

// Inference of convolutions on images in channels-last layout (NHWC) with weights that are packed
// once. A row of a filter's taps is then one stretch of memory, over which an implicit GEMM
// multiplies: vectors run along the output channels, and the inputs of a few pixels are broadcast.
// Images have a border of zeros as wide as the padding of their readers, so that no tap is special.
namespace ridgeline::cpu::simd {

// Images of one value: numbers between the pixels, rows and images of `data`, which points at the
// first pixel inside the border. Vectors may be loaded past the end of the last pixel.
struct NhwcImages {
  float* data = nullptr;
  int64_t pixel = 0, row = 0, image = 0;

  float* at(int64_t i, int64_t y, int64_t x) const {
    return data + i * image + y * row + x * pixel;
  }
};

// Floats from one pixel to the next: whole vectors of channels, or exactly the channels where they
// are few. Channels beyond the last hold finite numbers that are multiplied by zero.
constexpr int64_t nhwc_pixel(int64_t channels) {
  return channels < 16 ? channels : (channels + 15) / 16 * 16;
}

// What is done with the sums of an output: y = after(act(sum + bias) + residual).
struct NhwcEpilogue {
  SimdActivation act, after;
  const NhwcImages* residual = nullptr;
};

// A convolution with one group, or with as many groups as channels in and out (depthwise).
class NhwcConv {
 public:
  // x's strides must be those of the images that are given to run().
  NhwcConv(const Conv2dShape& shape, const NhwcImages& x);

  int64_t weight_floats() const;  // of the packed weights and the bias, aligned to vectors
  // w[k, c / groups, kernel h, kernel w] and b[k], which may be null, into `packed`, which holds
  // zeros and must outlive the object's use.
  void pack(const float* w, const float* b, float* packed);

  // The work is `tiles` of pixels by `panels` of output channels. A part of it:
  int64_t tiles(int64_t images) const;
  int64_t panels() const;
  void run(const NhwcImages& x, const NhwcImages& y, const NhwcEpilogue& epilogue, int64_t images,
           Range tiles, Range panels) const;

  const Conv2dShape& shape() const { return shape_; }

 private:
  Conv2dShape shape_;
  bool depthwise_;
  int64_t run_ = 0;            // floats of a stretch of taps
  std::vector<int64_t> runs_;  // where each stretch begins, from the first pixel's place on
  const float* w_ = nullptr;
  const float* bias_ = nullptr;
};

// A pool; rows [begin, end) of the outputs of all images, counted through. `divisor` 0: the largest
// of a window; else the sum over this number, or over the taps on the image if it is below 0.
struct NhwcPool {
  PoolShape shape;
  double divisor = 0;
  SimdActivation act;

  void run(const NhwcImages& x, const NhwcImages& y, Range rows) const;
};

// Plain images x[c, h, w] to channels last, and back; images [begin, end).
void nhwc_load(const float* x, const Image& image, const NhwcImages& y, Range images);
void nhwc_store(const NhwcImages& x, const Image& image, float* y, Range images);

// Writes the border of zeros of images [begin, end), `down` rows and `right` columns wide.
void nhwc_border(const NhwcImages& x, const Image& image, int64_t down, int64_t right,
                 Range images);

}  // namespace ridgeline::cpu::simd
