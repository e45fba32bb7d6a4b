#pragma once

#include <memory>
#include <vector>

#include "ridgeline/core/precision.h"
#include "ridgeline/cuda/libraries/cublaslt_api.h"

namespace ridgeline::cuda {

// D[m, n] = f(op(A) op(B)) in cuBLASLt's column-major view: our row-major [rows, columns] is its
// [columns, rows] with the pitch `columns`.
struct Product {
  enum class Epilogue { none, bias, relu, relu_bias, grad_bias };  // grad_bias: sums of B over k

  DType dtype = DType::fp32;   // of A, B and the bias
  DType result = DType::fp32;  // of D: `dtype`, or fp32 if that is a half type
  Precision precision = Precision::fp32;
  int64_t m = 0, n = 0, k = 0;
  bool a_transposed = false, b_transposed = false;
  int64_t a_pitch = 0, b_pitch = 0, d_pitch = 0;  // 0: contiguous
  bool adds = false;                              // D += instead of D =
  Epilogue epilogue = Epilogue::none;
};

// Operand memory; the epilogue reads or writes `bias`.
struct ProductOperands {
  const void *a = nullptr, *b = nullptr;
  void *d = nullptr, *bias = nullptr;
};

// Useful scratch memory for a product: room for some splits of k, within what Hopper's kernels use.
size_t product_workspace(const Product& product);

// Descriptors and cuBLASLt's best few algorithms for a product. Only the alignment of operands
// matters here: `for_alignment` may be null for memory that starts at multiples of 64 bytes.
class PreparedProduct {
 public:
  PreparedProduct(const CublasLt& library, const Product& product,
                  const ProductOperands* for_alignment, int wanted);
  ~PreparedProduct();
  PreparedProduct(const PreparedProduct&) = delete;
  PreparedProduct& operator=(const PreparedProduct&) = delete;

  size_t algorithms() const { return found_.size(); }  // 0: cuBLASLt cannot compute it
  size_t workspace(size_t algorithm) const { return found_[algorithm].workspaceSize; }

  // Enqueues the product; operands must be aligned like those it was prepared for.
  cublasStatus_t run(size_t algorithm, const ProductOperands& operands, void* workspace,
                     cudaStream_t stream) const;

 private:
  bool describe(const Product& product, const void* bias);
  void search(const ProductOperands* operands, size_t workspace, int wanted);

  const CublasLt::Api& api_;
  cublasLtHandle_t handle_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, d_ = nullptr;
  double alpha_ = 1, beta_ = 0;
  float alpha32_ = 1, beta32_ = 0;
  bool wide_ = false;  // scalars are fp64
  std::vector<cublasLtMatmulHeuristicResult_t> found_;
};

}  // namespace ridgeline::cuda
