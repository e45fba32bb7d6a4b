#pragma once

#include <string>

#include "ridgeline/ops/op.h"
#include "ridgeline/plan/kernel.h"

namespace ridgeline::cpu::simd {

// Signals (images of height 1) as rows of channels: [n, position, channel] where a plain value is
// [n, channel, position]. A window of a convolution is then contiguous, and vectors run along the
// channels. "rows:256x336" has 256 channels and 336 positions.

// Adds to `uses` that `value` is in rows of channels.
void use_rows(std::vector<FormatUse>& uses, const Value& value, const Image& signal);

// cpu.channel_rows.simd: converts between plain values and rows of channels.
Kernel transpose_kernel();

// A 1-D convolution without padding, stride or groups, and the ops after it: an activation (relu)
// and
// a pool of three, each optional.
struct SignalConv {
  const Conv2d* conv = nullptr;
  const Activation* relu = nullptr;
  const MaxPool* pool = nullptr;

  size_t ops() const { return 1 + size_t(relu != nullptr) + size_t(pool != nullptr); }
  const Value& y() const { return pool != nullptr ? pool->y : relu != nullptr ? relu->y : conv->y; }
  Image out() const { return pool != nullptr ? pool->shape.out() : conv->shape.out(); }
};

// Returns the longest such span at the beginning of `rest`; conv is null if there is no plain 1-D
// convolution.
SignalConv signal_conv_at(const RemainingOps& rest);

// Returns the cover of that span with values in rows of channels; refuses if a value inside is
// needed later.
Cover cover_in_rows(const RemainingOps& rest, const SignalConv& span);

// Normalisation over whole samples with gamma and beta, relu and a pool of three.
struct SignalNorm {
  const LayerNorm* norm = nullptr;
  const Activation* relu = nullptr;
  const MaxPool* pool = nullptr;
};
// Starts with the op at `offset`; norm is null if there is none.
SignalNorm signal_norm_at(const RemainingOps& rest, size_t offset);
// Returns why a kernel cannot take it, or "".
std::string refuse(const SignalNorm& span);

}  // namespace ridgeline::cpu::simd
