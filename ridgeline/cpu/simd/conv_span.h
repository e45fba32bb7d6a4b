#pragma once

#include <string>

#include "ridgeline/cpu/simd/direct_conv.h"
#include "ridgeline/cpu/simd/row.h"

// What rows of convolutions that keep an image in one thread share.
namespace ridgeline::cpu::simd {

// A convolution and what follows it in a row.
struct ConvSpan {
  const Conv2d* conv = nullptr;
  const Activation* activation = nullptr;
  const MaxPool* pool = nullptr;

  size_t ops() const { return 1 + size_t(activation != nullptr) + size_t(pool != nullptr); }
  const Value& y() const {
    return pool != nullptr ? pool->y : activation != nullptr ? activation->y : conv->y;
  }
  Act act() const { return activation != nullptr ? act_of(activation->kind) : Act::none; }
  DirectShape shape() const;
};

// How much of what follows a convolution a row takes along.
enum class ConvReach {
  alone,
  activated,  // and the activation, if there is one
  pooled,     // and a max pool of 2 x 2 behind that
};
// No convolution in it if the next ops are something else.
ConvSpan find_conv(const Rest& rest, ConvReach reach);

DirectShape direct_shape(const Conv2dShape& conv, bool pooled = false);

// Why no row of stride 1 without dilation takes it; empty if they do.
std::string refuse_conv(const Conv2dShape& shape, const Value& x);

// What a row reaching so far covers, all but its workspace.
Cover cover_conv(const Rest& rest, ConvReach reach);

}  // namespace ridgeline::cpu::simd
