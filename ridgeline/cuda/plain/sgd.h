#pragma once

#include <cstdint>

namespace ridgeline::cuda {

// The SGD updates of one step share these settings. Pointers are to device memory.
struct SgdSettings {
  const double* lr = nullptr;          // [repeats]
  const int32_t* tick = nullptr;       // [1]
  const double* grad_scale = nullptr;  // [1] or null
  double momentum = 0, decay = 0;
  bool nesterov = false;
};

}  // namespace ridgeline::cuda
