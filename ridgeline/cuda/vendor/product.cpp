#include "ridgeline/cuda/vendor/product.h"

#include <algorithm>
#include <cstdint>

namespace ridgeline::cuda {
namespace {

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return CUDA_R_64F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::fp16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

// fp32 is full fp32 unless the run allows tf32; half types are summed in fp32.
cublasComputeType_t compute_type(const Product& product) {
  if (product.dtype == DType::fp64) return CUBLAS_COMPUTE_64F;
  const bool tf32 = product.dtype == DType::fp32 && product.precision == Precision::tf32;
  return tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

cublasLtEpilogue_t epilogue_of(Product::Epilogue epilogue) {
  switch (epilogue) {
    case Product::Epilogue::bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Product::Epilogue::relu:
      return CUBLASLT_EPILOGUE_RELU;
    case Product::Epilogue::relu_bias:
      return CUBLASLT_EPILOGUE_RELU_BIAS;
    case Product::Epilogue::grad_bias:
      return CUBLASLT_EPILOGUE_BGRADB;
    case Product::Epilogue::none:
      break;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

constexpr uint32_t kArenaAlignment = 64;

uint32_t alignment_of(const void* p) {
  const uintptr_t bits = reinterpret_cast<uintptr_t>(p) | 256;
  return uint32_t(bits & (~bits + 1));
}

}  // namespace

size_t product_workspace(const Product& product) {
  const size_t width = product.dtype == DType::fp64 ? 8 : 4;
  const size_t wanted = 16 * size_t(product.m) * size_t(product.n) * width;
  return std::clamp(wanted, size_t{64} << 10, size_t{32} << 20);
}

PreparedProduct::PreparedProduct(const CublasLt& library, const Product& product,
                                 const ProductOperands* for_alignment, int wanted)
    : api_(library.api()), handle_(static_cast<cublasLtHandle_t>(library.handle())) {
  // The library considers the alignment of the bias pointer when it searches.
  const auto* any_bias = reinterpret_cast<const void*>(uintptr_t{kArenaAlignment});
  if (describe(product, for_alignment != nullptr ? for_alignment->bias : any_bias)) {
    search(for_alignment, product_workspace(product), wanted);
  }
}

bool PreparedProduct::describe(const Product& product, const void* bias) {
  const cudaDataType_t type = data_type(product.dtype);
  wide_ = product.dtype == DType::fp64;
  beta_ = product.adds ? 1 : 0;
  beta32_ = float(beta_);
  const auto ok = [](cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; };
  if (!ok(api_.desc_create(&desc_, compute_type(product), wide_ ? CUDA_R_64F : CUDA_R_32F))) {
    return false;
  }
  const auto set = [&](cublasLtMatmulDescAttributes_t what, auto value) {
    return ok(api_.desc_set(desc_, what, &value, sizeof(value)));
  };
  const auto op = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  bool good = set(CUBLASLT_MATMUL_DESC_TRANSA, op(product.a_transposed)) &&
              set(CUBLASLT_MATMUL_DESC_TRANSB, op(product.b_transposed)) &&
              set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(product.epilogue));
  const bool has_bias =
      product.epilogue != Product::Epilogue::none && product.epilogue != Product::Epilogue::relu;
  if (has_bias) good = good && set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  const auto layout = [&](cublasLtMatrixLayout_t& to, int64_t rows, int64_t columns) {
    const cudaDataType_t own = &to == &d_ ? data_type(product.result) : type;
    const int64_t pitch = &to == &d_   ? product.d_pitch
                          : &to == &a_ ? product.a_pitch
                                       : product.b_pitch;
    return ok(
        api_.layout_create(&to, own, uint64_t(rows), uint64_t(columns), pitch > 0 ? pitch : rows));
  };
  const auto [m, n, k] = std::tuple(product.m, product.n, product.k);
  return good && (product.a_transposed ? layout(a_, k, m) : layout(a_, m, k)) &&
         (product.b_transposed ? layout(b_, n, k) : layout(b_, k, n)) && layout(d_, m, n);
}

void PreparedProduct::search(const ProductOperands* operands, size_t workspace, int wanted) {
  cublasLtMatmulPreference_t preference = nullptr;
  if (api_.preference_create(&preference) != CUBLAS_STATUS_SUCCESS) return;
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
    api_.preference_set(preference, what, &value, sizeof(value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(workspace));
  // Splits of k are added in the accumulator dtype and in order: no result has less precision than
  // requested, and every run gives the same bits.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const auto align = [&](cublasLtMatmulPreferenceAttributes_t what, const void* p) {
    set(what, operands != nullptr ? std::min(alignment_of(p), kArenaAlignment) : kArenaAlignment);
  };
  const ProductOperands of = operands != nullptr ? *operands : ProductOperands{};
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, of.a);
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, of.b);
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of.d);
  align(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, of.d);
  found_.resize(size_t(wanted));
  int count = 0;
  const cublasStatus_t status =
      api_.heuristic(handle_, desc_, a_, b_, d_, d_, preference, wanted, found_.data(), &count);
  found_.resize(status == CUBLAS_STATUS_SUCCESS ? size_t(count) : 0);
  std::erase_if(found_, [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
  api_.preference_destroy(preference);
}

PreparedProduct::~PreparedProduct() {
  for (const cublasLtMatrixLayout_t layout : {a_, b_, d_}) {
    if (layout != nullptr) api_.layout_destroy(layout);
  }
  if (desc_ != nullptr) api_.desc_destroy(desc_);
}

cublasStatus_t PreparedProduct::run(size_t algorithm, const ProductOperands& operands,
                                    void* workspace, cudaStream_t stream) const {
  const cublasLtMatmulHeuristicResult_t& chosen = found_[algorithm];
  const void* alpha = wide_ ? static_cast<const void*>(&alpha_) : &alpha32_;
  const void* beta = wide_ ? static_cast<const void*>(&beta_) : &beta32_;
  return api_.matmul(handle_, desc_, alpha, operands.a, a_, operands.b, b_, beta, operands.d, d_,
                     operands.d, d_, &chosen.algo, workspace, chosen.workspaceSize, stream);
}

}  // namespace ridgeline::cuda
