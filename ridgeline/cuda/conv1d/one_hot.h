#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "ridgeline/cuda/conv1d/conv1d.h"

namespace ridgeline::cuda {

// The first block of a character network: a convolution over one-hot columns, a normalisation over
// all of a sample with a gamma and beta for every element, relu, and the maximum of each three
// positions.
struct OneHotBlockShape {
  int n = 0, length = 0, symbols = 0, out = 0, taps = 0;

  RIDGELINE_MIXED_HD int steps() const { return length - taps + 1; }
  RIDGELINE_MIXED_HD int windows() const { return steps() / 3; }
  RIDGELINE_MIXED_HD int filter() const { return symbols * taps; }
};

// The texts: codes [n, length], or bytes of a resident set selected by `order`.
struct CodeSource {
  const int32_t* token = nullptr;
  const uint8_t* set = nullptr;
  const int32_t* order = nullptr;
  const int64_t* first = nullptr;
  const int32_t* tick = nullptr;
};

template <typename T>
struct OneHotBlockArgs {
  OneHotBlockShape shape;
  CodeSource codes;
  const T* w = nullptr;  // [out, symbols, taps]
  MixedIn<T> bias;       // [out] or none
  const T* gamma = nullptr;
  const T* beta = nullptr;  // [out, steps]
  float epsilon = 0;
  T* y = nullptr;  // rows of channels, pitch signal_pitch(windows())
};

std::string refuse_one_hot_block(const OneHotBlockShape& shape, size_t width, size_t shared);
size_t one_hot_block_workspace(const OneHotBlockShape& shape, size_t width);
template <typename T>
cudaError_t launch_one_hot_block(const OneHotBlockArgs<T>& args, void* workspace, int sms,
                                 cudaStream_t stream);

}  // namespace ridgeline::cuda
