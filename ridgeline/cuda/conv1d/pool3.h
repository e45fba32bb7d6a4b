#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace ridgeline::cuda {

// relu and non-overlapping pools of three positions over plain signals whose length is a multiple
// of three. Window j of the whole batch is then elements 3j to 3j + 2.

// a = max(z, 0) and y[j] = max(a[3j..3j+2])
template <typename T>
cudaError_t launch_relu_pool3(int64_t windows, const T* z, T* a, T* y, cudaStream_t stream);

// dz = dy[j] where a is the first maximum of its window and positive, 0 elsewhere
template <typename T>
cudaError_t launch_pool3_relu_grad(int64_t windows, const T* a, const T* dy, T* dz,
                                   cudaStream_t stream);

}  // namespace ridgeline::cuda
