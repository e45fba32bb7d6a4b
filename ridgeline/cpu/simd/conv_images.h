#pragma once

#include <memory>
#include <vector>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/cpu/simd/direct_conv.h"
#include "ridgeline/cpu/simd/kernel.h"

// Images through one convolution, or several of which each reads what the one before wrote. An
// image is one thread's and stays in its cache between them; threads take the next one when they
// are done with the last, so that a slow core does fewer.
namespace ridgeline::cpu::simd {

enum class ConvAlgorithm { direct, winograd1d };  // direct_conv.h, winograd1d_conv2d.h

// A convolution with its activation and pool.
struct ImageConv {
  DirectShape shape;
  SimdActivation act = SimdActivation::none;
  ConvAlgorithm algorithm = ConvAlgorithm::direct;
  bool flipped = false;  // as in arrange_filters; direct only
  Value w, b;

  int64_t in() const { return shape.c * shape.h * shape.w; }
  int64_t out() const {
    const int64_t by = shape.pooled ? 2 : 1;
    return shape.k * (shape.out_h() / by) * (shape.out_w() / by);
  }
};

// Why winograd1d_conv2d.h refuses the convolution; empty if it does not.
std::string refuse_winograd1d(const ImageConv& conv, DType dtype);

size_t conv_images_workspace(const std::vector<ImageConv>& chain, DType dtype, int threads);
// x[n, in] to y[n, out]
std::unique_ptr<Step> conv_images_step(const std::vector<ImageConv>& chain, const Value& x,
                                       const Value& y, const Binding& binding);

}  // namespace ridgeline::cpu::simd
