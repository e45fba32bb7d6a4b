#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ridgeline/cuda/gemm/problem.h"
#include "ridgeline/cuda/plain/curve.h"
#include "ridgeline/cuda/plain/gather.h"
#include "ridgeline/cuda/plain/sgd.h"

// Products of a first layer whose inputs are scale * (byte - center), in fp32 by bf16 tensor cores.
// A byte less a whole center is a bf16 number, exactly; the other factor, an fp32 number, is a sum
// of `terms` bf16 numbers (two hold 16 bits of it, three all 24). So `terms` products of bf16 give
// what takes three of tf32 elsewhere, and wgmma takes bf16 in any layout: nothing is transposed.
// The terms lie beside each other, so that a product over k becomes one over terms * k:
//   x  [n][terms][in]    byte - center, the same in each term
//   w  [out][terms][in]
//   dz [n][terms][out]
namespace ridgeline::cuda {

// What the SGD epilogue of the gradient reads.
struct ByteScalars {
  float lr, momentum, decay, scale;
};

struct BytePrepareArgs {
  GatherArgs gather;  // y and shift are not used
  const float* w;     // [out][in]
  void *x, *w_terms;  // bf16
  ByteScalars* scalars;
  SgdSettings sgd;
  int in, out, terms;
  int center;  // 0..255
};

// Gathers the bytes and labels of a step, takes w apart, and copies the step's rates to `scalars`
// (whose scale is the gather's: the bytes are not multiplied by it). in: a multiple of 8.
cudaError_t launch_byte_prepare(const BytePrepareArgs& args, cudaStream_t stream);

// y[n, out] = f(scale * x . w^T + b), fp32
struct ByteLinear {
  int n, in, out, terms;
  const void *x, *w;
  const float* b;  // [out]
  float* y;
  float scale;
  Curve curve;  // not gelu
};
std::vector<PreparedGemm> byte_linear_gemms(const ByteLinear& product);

// w[out, in] by SGD with the gradient scale * dz^T . x; momentum [out, in] or null
struct ByteGradW {
  int n, in, out, terms;
  const void *x, *dz;
  float *w, *momentum;
  const ByteScalars* scalars;
};
std::vector<PreparedGemm> byte_grad_w_gemms(const ByteGradW& product);

}  // namespace ridgeline::cuda
