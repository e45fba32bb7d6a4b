#pragma once

#include <cuda_runtime_api.h>

#include "ridgeline/cuda/plain/mixed_operand.h"
#include "ridgeline/cuda/recurrent/cell.h"

// Operations that the gradients of a layer's weights need beside the large products after the loop.
namespace ridgeline::cuda::recurrent {

// before[B, T, H]: the state that each timestep began with; zero in the padding.
template <typename T>
cudaError_t launch_states_before(const Sequence& sequence, const T* y, const T* h0, T* before,
                                 cudaStream_t stream);

// cleared[B, T, width] = x, but zero in the padding: the padding may hold NaN or infinity, whose
// product with a gate gradient of zero is not zero.
template <typename T>
cudaError_t launch_clear_padding(const Sequence& sequence, const T* x, int width, T* cleared,
                                 cudaStream_t stream);

// db_ih and db_hh, each of which may be null: the sums over all rows of the gate gradients, in a
// fixed order. `parts` is [kBiasParts, vectors * H].
constexpr int kBiasParts = 64;
template <typename T>
cudaError_t launch_bias_gradients(const T* gate_gradients, int64_t rows, int64_t pitch, Cell cell,
                                  int hidden, Accumulated<T>* parts, MixedOut<T> db_ih,
                                  MixedOut<T> db_hh, cudaStream_t stream);

}  // namespace ridgeline::cuda::recurrent
