#pragma once

#include "ridgeline/cuda/gemm/problem.h"

// The products of a linear layer as problems for the tensor-core functions (gemm/gemm.h), for code
// that the host compiler compiles. Each list is sorted by estimated time, the best first, and may
// be empty. All of them start while the previous launch ends, and wait for its results.
namespace ridgeline::cuda {

enum class GemmType { bf16, fp16, tf32 };

// y[n, out] = f(x[n, in] . w[out, in]^T + b[out]), where f is relu or the identity; b may be null
// without relu
struct LinearGemm {
  GemmType type;
  int n, in, out;
  const void *x, *w;
  const float* b;
  void* y;
  bool relu;
  bool constant_w = false;  // the previous launch does not write w
};
std::vector<PreparedGemm> linear_gemms(const LinearGemm& product);

// dx[n, in] = dy[n, out] . w[out, in]; no tf32
struct LinearGradXGemm {
  GemmType type;
  int n, in, out;
  const void *dy, *w;
  void* dx;
};
std::vector<PreparedGemm> linear_grad_x_gemms(const LinearGradXGemm& product);

// dw[out, in] = dy[n, out]^T . x[n, in]; no tf32
struct LinearGradWGemm {
  GemmType type;
  int n, in, out;
  const void *x, *dy;
  void* dw;
  bool dw_fp32;
};
std::vector<PreparedGemm> linear_grad_w_gemms(const LinearGradWGemm& product);

}  // namespace ridgeline::cuda
