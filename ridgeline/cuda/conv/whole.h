#pragma once

#include "ridgeline/cuda/conv/twice.h"

// A whole small net in one kernel: two layers of convolution and pool as in twice.h, then a linear
// layer, its activation, a last linear layer and, if wanted, softmax. A block takes an image
// through the convolutions; the eight blocks of a cluster share out the inputs of the first linear
// layer, each for all eight images, so that a cluster reads its weights once.
namespace ridgeline::cuda {

constexpr int kWholeMostHidden = 128, kWholeMostClasses = 16;

bool has_whole(const TwiceShape& shape);

// T: __nv_bfloat16 or __half. Biases may be absent. Any curve behind the first linear layer.
template <typename T>
struct WholeArgs {
  TwiceArgs<T> convs;  // without y
  const T *w3, *w4;    // [hidden, features], [classes, hidden]
  LooseIn<T> b3, b4;
  Curve curve3;
  int hidden, classes;
  bool softmax;
  LooseOut<T> y;  // [n, classes]
};
template <typename T>
cudaError_t launch_conv_net_whole(const WholeArgs<T>& args, int processors, cudaStream_t stream);

}  // namespace ridgeline::cuda
