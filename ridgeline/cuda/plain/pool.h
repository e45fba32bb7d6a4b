#pragma once

#include <cuda_runtime_api.h>

#include "ridgeline/cuda/activation.h"
#include "ridgeline/cuda/plain/window.h"

// Pools of any geometry, one thread per element; the gradients gather.
namespace ridgeline::cuda {

template <typename T>
cudaError_t launch_max_pool(const PoolGeometry& g, const T* x, T* y, cudaStream_t stream);

// Recomputes the first index of each window's maximum.
template <typename T>
cudaError_t launch_max_pool_grad(const PoolGeometry& g, const T* x, const T* dy, T* dx,
                                 cudaStream_t stream);

// For non-overlapping 2 x 2 windows without padding: a = f(z) and y = max(a), from one read; and
// the gradient: dz = f'(saved a) times dy where a is the first maximum, 0 elsewhere.
template <typename T>
cudaError_t launch_activation_pool(const PoolGeometry& g, ActivationFn activation, const T* z, T* a,
                                   T* y, cudaStream_t stream);
template <typename T>
cudaError_t launch_pool_activation_grad(const PoolGeometry& g, ActivationFn activation, const T* a,
                                        const T* dy, T* dz, cudaStream_t stream);

// by_window: divides by the size of the whole window; otherwise by the number of its taps inside
// the image.
template <typename T>
cudaError_t launch_avg_pool(const PoolGeometry& g, bool by_window, const T* x, T* y,
                            cudaStream_t stream);
template <typename T>
cudaError_t launch_avg_pool_grad(const PoolGeometry& g, bool by_window, const T* dy, T* dx,
                                 cudaStream_t stream);

}  // namespace ridgeline::cuda
