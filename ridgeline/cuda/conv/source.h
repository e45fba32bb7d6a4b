#pragma once

#include <cstdint>

namespace ridgeline::cuda {

// The images that a kernel reads: floats x[n, ...] in the kernel's type or, with `set`, bytes of
// a resident set in the order of a Gather (ops/gather.h), which are scaled as they are read.
struct ImageSource {
  const void* x = nullptr;
  const uint8_t* set = nullptr;
  const int32_t* order = nullptr;
  const int64_t* first = nullptr;
  const int32_t* tick = nullptr;
  float scale = 1, shift = 0;
  int64_t n = 0;
};

}  // namespace ridgeline::cuda
