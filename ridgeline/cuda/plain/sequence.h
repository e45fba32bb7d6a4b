#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ridgeline/cuda/plain/mixed_operand.h"

// Ops around recurrent layers: embeddings, and one timestep of a sequence.
namespace ridgeline::cuda {

// y[i, :] = w[token[i], :]
template <typename T>
cudaError_t launch_embedding(const int32_t* token, const T* w, T* y, int64_t count, int64_t width,
                             cudaStream_t stream);
// dw[v, :] = sum over the i with token[i] == v of dy[i, :], i ascending
template <typename T>
cudaError_t launch_embedding_grad(const int32_t* token, const T* dy, MixedOut<T> dw, int64_t count,
                                  int64_t vocabulary, int64_t width, cudaStream_t stream);

// Which timestep of each sample is taken: ops/sequence.h. `lengths` may be null.
struct StepChoice {
  int64_t batch, steps, at, width;
  const int32_t* lengths;
};
template <typename T>
cudaError_t launch_select_timestep(const StepChoice& choice, const T* x, T* y, cudaStream_t stream);
template <typename T>
cudaError_t launch_select_timestep_grad(const StepChoice& choice, const T* dy, T* dx,
                                        cudaStream_t stream);

}  // namespace ridgeline::cuda
