#pragma once

#include "ridgeline/cuda/conv/fused_conv2.h"

// A whole small network in one kernel: two layers of convolution and pool as in fused_conv2.h, then
// a linear layer, its activation, a last linear layer and, optionally, softmax. A block takes one
// image through the convolutions. The eight blocks of a cluster then split the inputs of the first
// linear layer, each for all eight images, so that a cluster reads its weights once.
namespace ridgeline::cuda {

constexpr int kFusedLenetMostHidden = 128, kFusedLenetMostClasses = 16;

bool has_fused_lenet(const FusedConv2Shape& shape);

// T: __nv_bfloat16 or __half. Biases may be absent. The first linear layer may have any activation.
template <typename T>
struct FusedLenetArgs {
  FusedConv2Args<T> convs;  // y is unused
  const T *w3, *w4;         // [hidden, features], [classes, hidden]
  MixedIn<T> b3, b4;
  ActivationFn activation3;
  int hidden, classes;
  bool softmax;
  MixedOut<T> y;  // [n, classes]
};
template <typename T>
cudaError_t launch_fused_lenet(const FusedLenetArgs<T>& args, int sms, cudaStream_t stream);

}  // namespace ridgeline::cuda
