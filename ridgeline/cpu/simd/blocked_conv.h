#pragma once

#include <cstdint>
#include <vector>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/cpu/simd/gemm.h"
#include "ridgeline/ops/conv.h"

// Convolutions of images with their channels in blocks of one vector, [n][blocks][pixels][lanes],
// and their gradients, fp32. Vectors run along the output channels and the inputs of a few pixels
// are broadcast, so that no lane is lost to the width of an image, and any stride runs at full
// speed. Each image is first copied into a thread's scratch with its padding around it. A source of
// few channels may be plain. Each call handles one image on the calling thread.
namespace ridgeline::cpu::simd {

// An image with a border of zeros in scratch: [blocks][rows][columns][block], where a block is one
// channel of a plain image. With a stride, the columns that one tap reads lie side by side: those
// of remainder 0, then those of remainder 1, and so on.
struct PaddedImage {
  Image image;
  int64_t block = 1;
  int64_t top = 0, left = 0;            // of the border
  int64_t rows = 0, per_remainder = 0;  // columns of one remainder
  int64_t stride = 1;

  int64_t blocks() const { return (image.c + block - 1) / block; }
  int64_t row() const { return per_remainder * stride * block; }
  int64_t plane() const { return rows * row(); }
  int64_t floats() const { return blocks() * plane(); }
  int64_t at(int64_t r, int64_t column) const {
    return r * row() + (column % stride * per_remainder + column / stride) * block;
  }
  // Copies an image over the one that was there before. The border must be zero.
  void load(const float* x, float* scratch) const;
};

// A tap of the window: where it reads, from an output's place on, and its place among all taps.
struct BlockedTap {
  int64_t offset, index;
};

// Outputs of one row, `step` floats apart, that use the same taps.
struct BlockedStrip {
  int64_t source, y;  // places of the first
  int64_t first_tap, taps;
  int64_t count, step;
};

// The sums over channels and taps that a convolution (forward) or the gradient of its input
// computes for an image.
class BlockedSums {
 public:
  // The source is plain if its blocks are of one channel.
  static BlockedSums forward(const Conv2dShape& shape, bool plain);
  static BlockedSums input_grad(const Conv2dShape& shape);

  const PaddedImage& source() const { return source_; }
  // Floats of the packed weights, with room for the padded biases.
  int64_t weight_floats() const;
  int64_t weight_rows() const { return source_.image.c * taps_all_; }
  // Packs a range of weight_rows() of w in its plain layout, and the biases with the first row.
  void pack(const float* w, const float* bias, Range rows, float* packed) const;
  // Computes an image, blocked, from the one in `scratch`.
  void run(const float* scratch, const float* packed, SimdActivation act, float* y) const;

 private:
  PaddedImage source_;
  Image out_;
  int64_t taps_all_ = 0, out_stride_ = 0, source_stride_ = 0;  // strides of w in floats
  std::vector<BlockedTap> taps_;
  std::vector<BlockedStrip> strips_;
};

// The gradients of a convolution's weights and biases, summed over images.
class BlockedWeightGrad {
 public:
  BlockedWeightGrad(const Conv2dShape& shape, bool plain);

  const PaddedImage& source() const { return source_; }
  int64_t rows() const { return int64_t(offsets_.size()); }
  int64_t sum_floats() const;  // of a thread
  // Adds an image: x in `scratch`, dy blocked.
  void add(const float* scratch, const float* dy, float* sums) const;
  // Writes rows of dw, and db with the first, from the sums of all threads. db may be null.
  void finish(const std::vector<float*>& sums, Range rows, float* dw, float* db) const;

 private:
  Conv2dShape shape_;
  PaddedImage source_;
  std::vector<int64_t> offsets_;  // in the source, of each row of the packed weights
};

// The channels of a block: the lanes of this machine's vectors.
int64_t blocked_conv_lanes();

}  // namespace ridgeline::cpu::simd
