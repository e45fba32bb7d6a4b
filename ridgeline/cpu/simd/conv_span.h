#pragma once

#include <string>

#include "ridgeline/cpu/simd/direct_conv.h"
#include "ridgeline/cpu/simd/kernel.h"

// Helpers of the convolution kernels that process an image in one thread.
namespace ridgeline::cpu::simd {

// A convolution and the ops that follow it directly.
struct ConvSpan {
  const Conv2d* conv = nullptr;
  const Activation* activation = nullptr;
  const MaxPool* pool = nullptr;

  size_t ops() const { return 1 + size_t(activation != nullptr) + size_t(pool != nullptr); }
  const Value& y() const {
    return pool != nullptr ? pool->y : activation != nullptr ? activation->y : conv->y;
  }
  SimdActivation act() const {
    return activation != nullptr ? simd_activation(*activation) : SimdActivation();
  }
  DirectShape shape() const;
};

// The ops after a convolution that a kernel covers.
enum class ConvReach {
  alone,
  activated,  // and the activation, if there is one
  pooled,     // and a 2 x 2 max pool after that
};
// The result holds no convolution if the next ops are something else.
ConvSpan find_conv(const RemainingOps& rest, ConvReach reach);

DirectShape direct_shape(const Conv2dShape& conv, bool pooled = false);

// Returns why the kernels for stride 1 without dilation refuse it, or an empty string.
std::string refuse_conv(const Conv2dShape& shape, const Value& x);

// Returns the cover of a kernel with this reach, without its workspace.
Cover cover_conv(const RemainingOps& rest, ConvReach reach);

}  // namespace ridgeline::cpu::simd
