#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "ridgeline/cuda/plain/mixed_operand.h"

namespace ridgeline::cuda {

// d[m, n] = sum over k of a[m, k] b[n, k], plus bias[n] if there is one. Operands are fp16 in any
// order: an element is at row * row_pitch + k * k_pitch, and one of the two pitches is 1.
struct HalfOperand {
  const __half* data = nullptr;
  int64_t row_pitch = 0, k_pitch = 1;
};

struct HalfProduct {
  HalfOperand a, b;
  MixedIn<__half> bias;
  MixedOut<__half> d;  // rows of n
  int m = 0, n = 0, k = 0;
};

// Products on the tensor cores of every GPU from sm_75 on, by mma.m16n8k8.
enum class HalfSums { fp32, fp16 };  // the accumulator type
cudaError_t launch_half_product(const HalfProduct& product, HalfSums sums, cudaStream_t stream);

}  // namespace ridgeline::cuda
