#pragma once

#include <cuda_runtime_api.h>

namespace ridgeline::cuda {

struct SignalTranspose {
  int n = 0, channels = 0, length = 0, pitch = 0;
};

// Converts between plain signals [n, channels, length] and rows of channels [n * pitch, channels],
// whose rows past the length become zero.
template <typename T>
cudaError_t launch_transpose_signal(const SignalTranspose& shape, bool to_rows, const T* from,
                                    T* to, cudaStream_t stream);

}  // namespace ridgeline::cuda
