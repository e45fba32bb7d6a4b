#pragma once

#include "ridgeline/cuda/conv/source.h"

namespace ridgeline::cuda {

// The bytes of image i of the batch.
__device__ inline const uint8_t* bytes_of(const ImageSource& source, int64_t i, int64_t numel) {
  const int64_t row = source.order[*source.first + int64_t(*source.tick) * source.n + i];
  return source.set + row * numel;
}

}  // namespace ridgeline::cuda
