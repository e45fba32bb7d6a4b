#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ridgeline/cuda/activation.h"
#include "ridgeline/cuda/gemm/problem.h"
#include "ridgeline/cuda/plain/gather.h"
#include "ridgeline/cuda/plain/sgd.h"

// Products of a first layer whose inputs are scale * (byte - center), in fp32 by fp16 tensor cores.
// A byte minus an integer center is exactly an fp16 value. The other factor, an fp32 value, is a
// sum of `terms` fp16 values times a power of two: one term keeps the 11 bits that tf32 keeps, two
// terms keep 22. The power is chosen for each output so that its largest factor is just below 2^15:
// what falls below fp16's normal values is less than 2^-29 of that factor. wgmma takes fp16 in any
// layout, so nothing is transposed. The terms are side by side, so that a product over k becomes
// one over terms * k:
//   x  [n][terms][in]    byte - center, the same in each term
//   w  [out][terms][in]  times w_power[out] is w
//   dz [n][terms][out]   times dz_power[out] is dz
namespace ridgeline::cuda {

// Values that the SGD epilogue of the gradient reads.
struct Fp16SplitScalars {
  float lr, momentum, decay, scale;
};

struct Fp16SplitPrepareArgs {
  GatherArgs gather;  // y and shift are not used
  const float* w;     // [out][in]
  void *x, *w_terms;  // fp16
  float* w_power;     // [out]
  Fp16SplitScalars* scalars;
  SgdSettings sgd;
  int in, out, terms;
  int center;  // 0..255
};

// Gathers the bytes and labels of a step, splits w, and copies the step's rates to `scalars` (whose
// scale is the gather's: the bytes are not multiplied by it). `in` must be a multiple of 8.
cudaError_t launch_fp16_split_prepare(const Fp16SplitPrepareArgs& args, cudaStream_t stream);

// y[n, out] = f(scale * x . w^T + b), fp32
struct Fp16SplitLinear {
  int n, in, out, terms;
  const void *x, *w;
  const float *w_power, *b;  // [out]
  float* y;
  float scale;
  ActivationFn activation;  // not gelu
};
std::vector<PreparedGemm> fp16_split_linear_gemms(const Fp16SplitLinear& product);

// Updates w[out, in] by SGD with the gradient scale * dz^T . x; momentum is [out, in] or null
struct Fp16SplitGradW {
  int n, in, out, terms;
  const void *x, *dz;
  const float* dz_power;  // [out]
  float *w, *momentum;
  const Fp16SplitScalars* scalars;
  bool early;  // the launch just before writes neither x nor dz
};
std::vector<PreparedGemm> fp16_split_grad_w_gemms(const Fp16SplitGradW& product);

}  // namespace ridgeline::cuda
