#pragma once

#include <string>

#include "ridgeline/cuda/plain/one_hot_conv.h"

namespace ridgeline::cuda {

// The weight gradient of one_hot_conv1d in half precision, as a product on tensor cores:
//   dw[o, (s, u)] = sum over positions t of dy[o, t] * (token[t + u] == s)
// The second operand is built from the codes in registers and has an additional column of ones, for
// db. Zero times an infinite dy is NaN, so an overflow reaches every symbol of its channel.
std::string refuse_one_hot_grad(const OneHotGeometry& g);
size_t one_hot_grad_tensor_workspace(const OneHotGeometry& g, int sms);

// T: __nv_bfloat16 or __half
template <typename T>
cudaError_t launch_one_hot_grad_tensor(const OneHotGeometry& g, const int32_t* token, const T* dy,
                                       MixedOut<T> dw, MixedOut<T> db, void* workspace, int sms,
                                       cudaStream_t stream);

}  // namespace ridgeline::cuda
