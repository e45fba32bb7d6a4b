#pragma once

#include <string>

#include "ridgeline/ops/op.h"
#include "ridgeline/plan/kernel.h"

namespace ridgeline::cpu::simd {

// Signals (images of height 1) as rows of channels: [n, position, channel] where a plain value is
// [n, channel, position]. A window of a convolution is then one stretch of memory, and vectors run
// along the channels. "rows:256x336" has 256 channels and 336 positions.

// Adds to `uses` that `value` lies in rows of channels.
void use_rows(std::vector<FormatUse>& uses, const Value& value, const Image& signal);

// cpu.channel_rows.simd: converts between plain values and rows of channels.
Kernel transpose_kernel();

// A 1-D convolution without padding, stride or groups, and what follows it: an activation (relu),
// a pool of three, each or none.
struct SignalConv {
  const Conv2d* conv = nullptr;
  const Activation* relu = nullptr;
  const MaxPool* pool = nullptr;

  size_t ops() const { return 1 + size_t(relu != nullptr) + size_t(pool != nullptr); }
  const Value& y() const { return pool != nullptr ? pool->y : relu != nullptr ? relu->y : conv->y; }
  Image out() const { return pool != nullptr ? pool->shape.out() : conv->shape.out(); }
};

// The longest such span at the beginning of `rest`; conv is null where there is none, or no plain
// 1-D convolution.
SignalConv signal_conv_at(const Rest& rest);

// The cover of that span with values in rows of channels; refuses when something inside is needed
// later.
Cover cover_in_rows(const Rest& rest, const SignalConv& span);

// Normalisation over whole samples with gamma and beta, relu and a pool of three.
struct SignalNorm {
  const LayerNorm* norm = nullptr;
  const Activation* relu = nullptr;
  const MaxPool* pool = nullptr;
};
// From the op at `offset` on; norm is null where there is none.
SignalNorm signal_norm_at(const Rest& rest, size_t offset);
// Why a kernel cannot take it; "" when it can.
std::string refuse(const SignalNorm& span);

}  // namespace ridgeline::cpu::simd
