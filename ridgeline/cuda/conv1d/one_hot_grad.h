#pragma once

#include <string>

#include "ridgeline/cuda/plain/one_hot_conv.h"

namespace ridgeline::cuda {

// The weight gradient of one_hot_conv1d in halves as a product on the tensor cores:
//   dw[o, (s, u)] = sum over positions t of dy[o, t] * (token[t + u] == s)
// whose second factor is made of the codes in registers. It has a column of ones too, for db. A
// factor of zero times an infinite dy is no number: overflows reach every symbol of their channel.
std::string refuse_one_hot_grad(const OneHotGeometry& g);
size_t one_hot_grad_tensor_workspace(const OneHotGeometry& g, int sms);

// T: __nv_bfloat16 or __half
template <typename T>
cudaError_t launch_one_hot_grad_tensor(const OneHotGeometry& g, const int32_t* token, const T* dy,
                                       MixedOut<T> dw, MixedOut<T> db, void* workspace, int sms,
                                       cudaStream_t stream);

}  // namespace ridgeline::cuda
