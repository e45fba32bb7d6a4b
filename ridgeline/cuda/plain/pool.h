#pragma once

#include <cuda_runtime_api.h>

#include "ridgeline/cuda/activation.h"
#include "ridgeline/cuda/plain/window.h"

// Pools of any geometry, one thread an element; the gradients gather.
namespace ridgeline::cuda {

template <typename T>
cudaError_t launch_max_pool(const PoolGeometry& g, const T* x, T* y, cudaStream_t stream);

// Finds again where each window's largest element is first reached.
template <typename T>
cudaError_t launch_max_pool_grad(const PoolGeometry& g, const T* x, const T* dy, T* dx,
                                 cudaStream_t stream);

// For windows of 2 x 2 that do not overlap, no padding: a = f(z) and y = the largest a, from one
// reading; and back: dz = f'(saved a) times dy where a is first the largest, 0 elsewhere.
template <typename T>
cudaError_t launch_activation_pool(const PoolGeometry& g, ActivationFn activation, const T* z, T* a,
                                   T* y, cudaStream_t stream);
template <typename T>
cudaError_t launch_pool_activation_grad(const PoolGeometry& g, ActivationFn activation, const T* a,
                                        const T* dy, T* dz, cudaStream_t stream);

// by_window: divide by the whole window; else by its taps on the image.
template <typename T>
cudaError_t launch_avg_pool(const PoolGeometry& g, bool by_window, const T* x, T* y,
                            cudaStream_t stream);
template <typename T>
cudaError_t launch_avg_pool_grad(const PoolGeometry& g, bool by_window, const T* dy, T* dx,
                                 cudaStream_t stream);

}  // namespace ridgeline::cuda
