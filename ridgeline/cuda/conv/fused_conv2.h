#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "ridgeline/cuda/activation.h"
#include "ridgeline/cuda/conv/source.h"
#include "ridgeline/cuda/plain/mixed_operand.h"

// Two layers of convolution, bias, activation and 2 x 2 max pool in one kernel on tensor cores. A
// block takes an image from its bytes (or values) to the outputs of the second pool; the map
// between the layers stays in shared memory. Takes the shapes listed in fused_conv2.cuh.
namespace ridgeline::cuda {

struct FusedConv2Shape {
  int h = 0, w = 0;         // the extents of the one-channel image
  int filter1 = 0, k1 = 0;  // first layer
  int filter2 = 0, k2 = 0;  // second layer
  bool operator==(const FusedConv2Shape&) const = default;
};

bool has_fused_conv2(const FusedConv2Shape& shape);

// Bytes of shared memory per block for factors of this width; the maximum over the shapes.
size_t fused_conv2_shared_memory(size_t factor);

// Writes y[n, k2, ...], the output of the second pool. T: __nv_bfloat16, __half, or float (factors
// rounded to tf32). Pointers must be aligned to 16 bytes. Biases may be absent. The activations
// must be non-decreasing.
template <typename T>
struct FusedConv2Args {
  ImageSource source;
  const T *w1, *w2;
  MixedIn<T> b1, b2;
  T* y;
  ActivationFn activation1, activation2;
};

// `variant` is 0 .. kFusedConv2Variants - 1. Variants distribute images over warps differently; the
// planner measures them.
constexpr int kFusedConv2Variants = 3;
// Describes a variant: "2 images, 15 warps a block".
template <typename T>
std::string fused_conv2_variant(int variant);
template <typename T>
cudaError_t launch_fused_conv2(const FusedConv2Shape& shape, const FusedConv2Args<T>& args,
                               int variant, int sms, cudaStream_t stream);

}  // namespace ridgeline::cuda
