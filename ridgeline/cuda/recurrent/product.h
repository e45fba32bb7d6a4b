#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>

#include "ridgeline/core/precision.h"
#include "ridgeline/cuda/runtime.h"

namespace ridgeline::cuda::recurrent {

// A row-major matrix in memory; `transposed`: the product uses its transpose.
struct Factor {
  const void* data = nullptr;
  int64_t pitch = 0;
  bool transposed = false;
  // Elements between the addresses it is used at, for its alignment; 0 if there is one address.
  int64_t stride = 0;
};

// d[m, n] = a[m, k] . b[k, n], or d += with `adds`. d has the factors' type or their accumulator
// type.
struct RowProduct {
  DType dtype = DType::fp32, result = DType::fp32;
  Precision precision = Precision::fp32;
  int64_t m = 0, n = 0, k = 0;
  Factor a, b;
  void* d = nullptr;
  int64_t d_pitch = 0, d_stride = 0;
  bool adds = false;
};

enum class Multiplier : uint8_t { plain, cublaslt };

// Why such a product cannot be computed by a proposal of cuBLASLt's; "" if it can. Memory addresses
// are not considered.
std::string refuse_product(const CudaRuntime& runtime, Multiplier by, const RowProduct& product,
                           int proposal = 0);
// The scratch memory for any such product.
size_t product_scratch(Multiplier by, const RowProduct& product);

// Enqueues the product with a, b and d advanced by `place` strides.
using Multiply = std::function<cudaError_t(int64_t place, cudaStream_t stream)>;
// `what` names the op in messages; `proposal` counts cuBLASLt's proposals.
Multiply prepare_product(const CudaRuntime& runtime, Multiplier by, const RowProduct& product,
                         void* scratch, const std::string& what, int proposal = 0);

}  // namespace ridgeline::cuda::recurrent
