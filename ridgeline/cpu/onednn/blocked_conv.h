#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "ridgeline/cpu/onednn/layout.h"
#include "ridgeline/cpu/simd/blocked_conv.h"
#include "ridgeline/cpu/simd/kernel.h"

// Parts of kernels that compute convolutions of oneDNN's blocked images by our own code
// (simd/blocked_conv.h), alone or fused with the normalisation after them.
namespace ridgeline::cpu {

inline int64_t block_size() { return blocked_tag() == Tag::nChw16c ? 16 : 8; }

// Blocks of fewer channels than half would be mostly padding: the first images of a net are plain.
inline bool stays_plain(const Image& image) { return 2 * image.c < block_size(); }

inline bool add_image(std::vector<FormatUse>& uses, const Value& value, const Image& image) {
  return add_use(uses, value, image_memory(value.shape[0], image, blocked_tag()), image);
}
inline bool add_input(std::vector<FormatUse>& uses, const Value& value, const Image& image) {
  return stays_plain(image) || add_image(uses, value, image);
}

inline constexpr const char* kNoLayoutName = "a layout that has no name here";

// Floats of an image in memory.
inline int64_t blocked_floats(const Image& image) {
  const int64_t block = block_size();
  return (image.c + block - 1) / block * block * image.pixels();
}

// Returns why the parts cannot take a convolution, or "".
std::string refuse_blocked_conv(const Conv2dShape& shape, const Values& values);

// A convolution, or the gradient of its input, image by image. allot() is called twice, as Scratch
// says.
class BlockedSumsPart {
 public:
  static BlockedSumsPart forward(const Conv2d& op);
  static BlockedSumsPart input_grad(const Conv2dGradX& op);

  void allot(simd::Scratch& scratch, int threads);
  void bind(const float* x, const float* w, const float* b, simd::SimdActivation act, float* y);
  // Prepares a thread's share; a barrier must follow.
  void begin(int thread, int threads) const;
  void image(int thread, int64_t i) const { image(thread, i, x_ + i * x_floats_); }
  void image(int thread, int64_t i, const float* x) const;

 private:
  explicit BlockedSumsPart(simd::BlockedSums sums) : sums_(std::move(sums)) {}

  simd::BlockedSums sums_;
  int64_t x_floats_ = 0, y_floats_ = 0;
  const float *x_ = nullptr, *w_ = nullptr, *b_ = nullptr;
  simd::SimdActivation act_;
  float *y_ = nullptr, *packed_ = nullptr;
  std::vector<float*> padded_;  // an image of each thread
};

// The gradients of a convolution's weights. Threads add up their own images, always the same ones,
// so that the sums repeat.
class BlockedWeightGradPart {
 public:
  explicit BlockedWeightGradPart(const Conv2dGradW& op);

  // Returns why it does not apply, or "".
  std::string refuses() const;
  void allot(simd::Scratch& scratch, int threads);
  void bind(const Conv2dGradW& op, const Binding& binding);
  void begin(int thread) const;
  void image(int thread, int64_t i, const float* dy) const;
  // Writes a thread's share of the results; a barrier must precede it.
  void finish(int thread, int threads) const;

 private:
  simd::BlockedWeightGrad grad_;
  int64_t x_floats_;
  const float* x_ = nullptr;
  float *dw_ = nullptr, *db_ = nullptr;
  std::vector<float*> padded_, sums_;  // of each thread
};

}  // namespace ridgeline::cpu
