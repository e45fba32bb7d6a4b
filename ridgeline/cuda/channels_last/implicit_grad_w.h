#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

#include "ridgeline/cuda/plain/mixed_operand.h"

// The gradient of 3 x 3 filters (stride 1, padding 1) from half-precision rows of channels
// [n, h, w, c] as an implicit product by wgmma, for sm_90a.
namespace ridgeline::cuda {

struct ImplicitGradWShape {
  int n = 0, h = 0, w = 0, c = 0, k = 0;
  // A box is `columns` pixels of a row in each of `images` images. A strip is the boxes of all rows
  // in the same columns and images.
  int columns = 0, images = 0;
  int strips = 0, splits = 0;  // a block adds the products of a split's strips

  // w is a multiple of four.
  ImplicitGradWShape(int n, int h, int w, int c, int k, int sms);

  // The splits' sums, [split, k, tap, c] floats.
  size_t workspace() const { return size_t(splits) * size_t(k) * 9 * size_t(c) * sizeof(float); }
};

// Writes dw[k, c, 3, 3]. x, dy and partial (shape.workspace() bytes) are aligned to 16 bytes, and c
// and k are multiples of eight.
template <typename T>
std::function<cudaError_t(cudaStream_t)> prepare_implicit_grad_w(const ImplicitGradWShape& shape,
                                                                 const T* x, const T* dy,
                                                                 float* partial, MixedOut<T> dw);

}  // namespace ridgeline::cuda
