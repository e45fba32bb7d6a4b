#pragma once

#include <memory>
#include <vector>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/cpu/simd/direct_conv.h"
#include "ridgeline/cpu/simd/kernel.h"

// Images through one convolution, or through several in a row. One thread computes an image, which
// stays in its cache between convolutions; threads take the next image when they finish one, so a
// slow core computes fewer.
namespace ridgeline::cpu::simd {

enum class ConvAlgorithm { direct, winograd1d };  // direct_conv.h, winograd1d_conv2d.h

// A convolution with its activation and pool.
struct ImageConv {
  DirectShape shape;
  SimdActivation act = ActivationKind::none;
  ConvAlgorithm algorithm = ConvAlgorithm::direct;
  bool flipped = false;  // as in arrange_filters; direct only
  Value w, b;

  int64_t in() const { return shape.c * shape.h * shape.w; }
  int64_t out() const {
    const int64_t by = shape.pooled ? 2 : 1;
    return shape.k * (shape.out_h() / by) * (shape.out_w() / by);
  }
};

// Returns why winograd1d_conv2d.h refuses the convolution, or an empty string.
std::string refuse_winograd1d(const ImageConv& conv, DType dtype);

size_t conv_images_workspace(const std::vector<ImageConv>& chain, DType dtype, int threads);
// Computes y[n, out] from x[n, in].
std::unique_ptr<Step> conv_images_step(const std::vector<ImageConv>& chain, const Value& x,
                                       const Value& y, const Binding& binding);

}  // namespace ridgeline::cpu::simd
