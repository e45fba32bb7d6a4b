#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "ridgeline/cuda/activation.h"
#include "ridgeline/cuda/conv/source.h"
#include "ridgeline/cuda/plain/mixed_operand.h"

// Two layers of convolution, bias, activation and 2 x 2 max pool in one kernel, on tensor cores: a
// block takes an image from its bytes (or numbers) to the second pool's outputs, the map between
// the layers stays in shared memory. For the shapes listed in fused_conv2.cuh.
namespace ridgeline::cuda {

struct FusedConv2Shape {
  int h = 0, w = 0;         // of the one-channel image
  int filter1 = 0, k1 = 0;  // first layer
  int filter2 = 0, k2 = 0;  // second layer
  bool operator==(const FusedConv2Shape&) const = default;
};

bool has_fused_conv2(const FusedConv2Shape& shape);

// Bytes of shared memory a block needs, for factors of so many bytes; the largest of the shapes.
size_t fused_conv2_shared_memory(size_t factor);

// y[n, k2, ...] of the second pool. T: __nv_bfloat16, __half, or float (factors rounded to tf32).
// Pointers must be aligned to 16 bytes. Biases may be absent. The activations must not decrease.
template <typename T>
struct FusedConv2Args {
  ImageSource source;
  const T *w1, *w2;
  MixedIn<T> b1, b2;
  T* y;
  ActivationFn activation1, activation2;
};

// `variant` 0 .. kFusedConv2Variants - 1: ways to share images out over warps, for the planner to
// time.
constexpr int kFusedConv2Variants = 3;
// What a variant is: "2 images, 15 warps a block".
template <typename T>
std::string fused_conv2_variant(int variant);
template <typename T>
cudaError_t launch_fused_conv2(const FusedConv2Shape& shape, const FusedConv2Args<T>& args,
                               int variant, int sms, cudaStream_t stream);

}  // namespace ridgeline::cuda
