#pragma once

#include "ridgeline/cuda/conv/implicit.h"
#include "ridgeline/cuda/conv/source.h"

// Convolution with few input channels (grey or colour images), bias, activation and a 2 x 2 max
// pool on tensor cores. T as in implicit.h; stride 1, no dilation, one group, square filters.
namespace ridgeline::cuda {

// Outputs of a gather that the kernel performs: the images as values, and the labels of the batch.
template <typename T>
struct Gathered {
  T* x = nullptr;  // [n, c, h, w]; null if not wanted
  const int32_t* labels = nullptr;
  int32_t* label = nullptr;  // [n, label_row]; null without labels
  int label_row = 1;
};

template <typename T>
struct SmallCinArgs {
  ImplicitShape shape;
  ImageSource source;
  Gathered<T> gathered;  // used if the source is bytes
  const T* w;
  MixedIn<T> b;
  PooledOutput<T> pool;
  T* y;
};

// Why no kernel takes this shape; "" if one does.
const char* refuse_small_cin(const ImplicitShape& shape, size_t width, size_t shared_memory);
template <typename T>
cudaError_t launch_conv2d_pool_small_cin(const SmallCinArgs<T>& args, int sms, cudaStream_t stream);

}  // namespace ridgeline::cuda
