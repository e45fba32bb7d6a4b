#pragma once

#include <cublasLt.h>
#include <cublas_v2.h>

#include "gemm_check.cuh"

// These products by cuBLAS and cuBLASLt.
namespace ridgeline::bench {

#define BENCH_BLAS(call)                                                                  \
  do {                                                                                    \
    const cublasStatus_t bench_status = (call);                                           \
    if (bench_status != CUBLAS_STATUS_SUCCESS) {                                          \
      std::printf("%s:%d %s: status %d\n", __FILE__, __LINE__, #call, int(bench_status)); \
      std::exit(1);                                                                       \
    }                                                                                     \
  } while (0)

template <typename T>
constexpr cudaDataType_t blas_type() {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return CUDA_R_16BF;
  if constexpr (std::is_same_v<T, __half>) return CUDA_R_16F;
  return CUDA_R_32F;
}

// The libraries are column-major: D^T[n, m] = B^T A^T, so B comes first. The column-major view of
// an operand that we call k-major is [k, rows].
inline cublasOperation_t blas_first(Major b) { return b == Major::k ? CUBLAS_OP_T : CUBLAS_OP_N; }
inline cublasOperation_t blas_second(Major a) { return a == Major::k ? CUBLAS_OP_N : CUBLAS_OP_T; }

constexpr size_t kBlasWorkspace = 64 << 20;

constexpr int kMaxAlgorithms = 8;

// Descriptors for a shape, and cuBLASLt's best proposals for it.
struct LtPlan {
  cublasLtMatmulDesc_t op;
  cublasLtMatrixLayout_t first, second, out;
  cublasLtMatmulHeuristicResult_t found[kMaxAlgorithms];
  int count = 0;
};

class Vendor {
 public:
  Vendor() : workspace_(kBlasWorkspace) {
    BENCH_BLAS(cublasCreate(&blas_));
    BENCH_BLAS(cublasLtCreate(&lt_));
    BENCH_BLAS(cublasSetWorkspace(blas_, workspace_.get(), kBlasWorkspace));
  }

  template <typename In, typename Out>
  void run_cublas(const GemmProblem& p, cudaStream_t stream) {
    const float one = 1.0f, zero = 0.0f;
    BENCH_BLAS(cublasSetStream(blas_, stream));
    BENCH_BLAS(cublasSetWorkspace(blas_, workspace_.get(), kBlasWorkspace));
    BENCH_BLAS(cublasGemmEx(blas_, blas_first(p.b_major), blas_second(p.a_major), p.n, p.m, p.k,
                            &one, p.b, blas_type<In>(), int(p.ldb), p.a, blas_type<In>(),
                            int(p.lda), &zero, p.d, blas_type<Out>(), int(p.ldd),
                            CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  }

  template <typename In, typename Out>
  LtPlan plan_lt(const GemmProblem& p) {
    LtPlan plan;
    const cublasOperation_t op1 = blas_first(p.b_major), op2 = blas_second(p.a_major);
    BENCH_BLAS(cublasLtMatmulDescCreate(&plan.op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    BENCH_BLAS(cublasLtMatmulDescSetAttribute(plan.op, CUBLASLT_MATMUL_DESC_TRANSA, &op1, 4));
    BENCH_BLAS(cublasLtMatmulDescSetAttribute(plan.op, CUBLASLT_MATMUL_DESC_TRANSB, &op2, 4));
    const bool t1 = op1 == CUBLAS_OP_T, t2 = op2 == CUBLAS_OP_T;
    BENCH_BLAS(cublasLtMatrixLayoutCreate(&plan.first, blas_type<In>(), t1 ? p.k : p.n,
                                          t1 ? p.n : p.k, p.ldb));
    BENCH_BLAS(cublasLtMatrixLayoutCreate(&plan.second, blas_type<In>(), t2 ? p.m : p.k,
                                          t2 ? p.k : p.m, p.lda));
    BENCH_BLAS(cublasLtMatrixLayoutCreate(&plan.out, blas_type<Out>(), p.n, p.m, p.ldd));
    cublasLtMatmulPreference_t preference;
    BENCH_BLAS(cublasLtMatmulPreferenceCreate(&preference));
    BENCH_BLAS(cublasLtMatmulPreferenceSetAttribute(preference,
                                                    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                    &kBlasWorkspace, sizeof(kBlasWorkspace)));
    BENCH_BLAS(cublasLtMatmulAlgoGetHeuristic(lt_, plan.op, plan.first, plan.second, plan.out,
                                              plan.out, preference, kMaxAlgorithms, plan.found,
                                              &plan.count));
    BENCH_BLAS(cublasLtMatmulPreferenceDestroy(preference));
    return plan;
  }
  cublasStatus_t run_lt(const LtPlan& plan, int algo, const GemmProblem& p, cudaStream_t stream) {
    const float one = 1.0f, zero = 0.0f;
    return cublasLtMatmul(lt_, plan.op, &one, p.b, plan.first, p.a, plan.second, &zero, p.d,
                          plan.out, p.d, plan.out, &plan.found[algo].algo, workspace_.get(),
                          kBlasWorkspace, stream);
  }
  static void destroy(LtPlan& plan) {
    cublasLtMatrixLayoutDestroy(plan.first);
    cublasLtMatrixLayoutDestroy(plan.second);
    cublasLtMatrixLayoutDestroy(plan.out);
    cublasLtMatmulDescDestroy(plan.op);
  }

 private:
  DeviceArray<char> workspace_;
  cublasHandle_t blas_;
  cublasLtHandle_t lt_;
};

}  // namespace ridgeline::bench
