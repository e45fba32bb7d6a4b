#pragma once

#include <cuda_runtime_api.h>

#include "ridgeline/cuda/plain/mixed_operand.h"
#include "ridgeline/cuda/plain/window.h"

// Convolutions of any geometry: one thread per output, with its sum in a register. Gradients are
// computed by gathering all terms of an element, so nothing is added to memory and every run gives
// the same bits.
namespace ridgeline::cuda {

// y[n, k, p, q];  b may be absent
template <typename T>
cudaError_t launch_conv2d(const ConvGeometry& g, const T* x, const T* w, MixedIn<T> b, T* y,
                          cudaStream_t stream);

// Writes dx[n, c, h, w]
template <typename T>
cudaError_t launch_conv2d_grad_x(const ConvGeometry& g, const T* dy, const T* w, T* dx,
                                 cudaStream_t stream);

// y[n, k, p, q] += b[k]
template <typename T>
cudaError_t launch_conv2d_add_bias(const ConvGeometry& g, MixedIn<T> b, T* y, cudaStream_t stream);
// Writes db[k]
template <typename T>
cudaError_t launch_conv2d_grad_b(const ConvGeometry& g, const T* dy, MixedOut<T> db,
                                 cudaStream_t stream);
// Writes dw[k, group_in, kernel, kernel] and db[k]; db may be absent
template <typename T>
cudaError_t launch_conv2d_grad_w(const ConvGeometry& g, const T* x, const T* dy, MixedOut<T> dw,
                                 MixedOut<T> db, cudaStream_t stream);

// The parts of a convolution as a matrix product (im2col), for one group, over the images [first,
// first + count). r = (i*p + row)*q + column is counted within these images, and f = (c*kernel +
// u)*kernel + v:

// columns[r, f] = x at that tap, 0 on the padding
template <typename T>
cudaError_t launch_unroll(const ConvGeometry& g, const T* x, T* columns, int first, int count,
                          cudaStream_t stream);
// Writes dx: for each pixel the sum of the taps in `columns` that fall on it
template <typename T>
cudaError_t launch_roll_up(const ConvGeometry& g, const T* columns, T* dx, int first, int count,
                           cudaStream_t stream);
// rows[r, channel] = images[i, channel, row, column], and back
template <typename T>
cudaError_t launch_channels_last(const ConvGeometry& g, const T* images, T* rows, int first,
                                 int count, cudaStream_t stream);
template <typename T>
cudaError_t launch_channels_first(const ConvGeometry& g, const T* rows, T* images, int first,
                                  int count, cudaStream_t stream);

}  // namespace ridgeline::cuda
