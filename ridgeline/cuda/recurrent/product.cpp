#include "ridgeline/cuda/recurrent/product.h"

#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/recurrent/matrix.h"
#include "ridgeline/cuda/vendor/product.h"

namespace ridgeline::cuda::recurrent {
namespace {

constexpr int kProposals = 3;

// The product in cuBLASLt's column-major view: d^T = b^T . a^T.
Product product_of(const RowProduct& p) {
  Product product;
  product.dtype = p.dtype;
  product.result = p.result;
  product.precision = p.precision;
  product.m = p.n;
  product.n = p.m;
  product.k = p.k;
  product.a_transposed = p.b.transposed;
  product.b_transposed = p.a.transposed;
  product.a_pitch = p.b.pitch;
  product.b_pitch = p.a.pitch;
  product.d_pitch = p.d_pitch;
  product.adds = p.adds;
  return product;
}

const void* moved(const void* data, int64_t elements, DType dtype) {
  return static_cast<const std::byte*>(data) + elements * int64_t(size_of(dtype));
}

// An address with the alignment of the least aligned of those that are a stride apart.
const void* least_aligned(const void* data, int64_t stride, DType dtype) {
  const auto bits = reinterpret_cast<uintptr_t>(data) | uintptr_t(stride) * size_of(dtype);
  return reinterpret_cast<const void*>(bits);
}

Multiply prepare_cublaslt(const CudaRuntime& runtime, const RowProduct& p, void* scratch,
                          const std::string& what, int proposal) {
  const ProductOperands alignment{
      least_aligned(p.b.data, p.b.stride, p.dtype), least_aligned(p.a.data, p.a.stride, p.dtype),
      const_cast<void*>(least_aligned(p.d, p.d_stride, p.result)), nullptr};
  auto prepared =
      std::make_shared<PreparedProduct>(runtime.cublaslt(), product_of(p), &alignment, kProposals);
  if (prepared->algorithms() == 0) {
    throw_error(ErrorKind::device, "{}: cuBLASLt has no algorithm for operands at odd addresses",
                what);
  }
  const size_t algorithm = std::min(size_t(proposal), prepared->algorithms() - 1);
  const auto* api = &runtime.cublaslt().api();
  return [=](int64_t place, cudaStream_t stream) {
    const ProductOperands operands{
        moved(p.b.data, place * p.b.stride, p.dtype), moved(p.a.data, place * p.a.stride, p.dtype),
        const_cast<void*>(moved(p.d, place * p.d_stride, p.result)), nullptr};
    const cublasStatus_t status = prepared->run(algorithm, operands, scratch, stream);
    if (status != CUBLAS_STATUS_SUCCESS) {
      throw_error(ErrorKind::device, "{}: cuBLASLt reports {}", what, api->status_text(status));
    }
    return cudaSuccess;
  };
}

Multiply prepare_plain(const RowProduct& p) {
  return dispatch_device_float(p.dtype, [&](auto type) -> Multiply {
    using T = decltype(type);
    MatrixArgs<T> args{};
    args.m = int(p.m);
    args.n = int(p.n);
    args.k = int(p.k);
    args.a_row = p.a.transposed ? 1 : p.a.pitch;
    args.a_column = p.a.transposed ? p.a.pitch : 1;
    args.b_row = p.b.transposed ? 1 : p.b.pitch;
    args.b_column = p.b.transposed ? p.b.pitch : 1;
    args.d_row = p.d_pitch;
    args.d.is_accumulator = p.result != p.dtype;
    args.adds = p.adds;
    return [=](int64_t place, cudaStream_t stream) {
      MatrixArgs<T> here = args;
      here.a = static_cast<const T*>(p.a.data) + place * p.a.stride;
      here.b = static_cast<const T*>(p.b.data) + place * p.b.stride;
      here.d.data = const_cast<void*>(moved(p.d, place * p.d_stride, p.result));
      return launch_matrix<T>(here, stream);
    };
  });
}

}  // namespace

std::string refuse_product(const CudaRuntime& runtime, Multiplier by, const RowProduct& p,
                           int proposal) {
  std::string reason = refuse_large({p.m, p.n, p.k});
  if (!reason.empty() || by == Multiplier::plain) return reason;
  if (!runtime.cublaslt().refusal().empty()) return runtime.cublaslt().refusal();
  const size_t algorithms =
      PreparedProduct(runtime.cublaslt(), product_of(p), nullptr, proposal + 1).algorithms();
  if (algorithms == 0) return "cuBLASLt does not compute this product";
  if (algorithms <= size_t(proposal)) return "cuBLASLt has no further proposal";
  return {};
}

size_t product_scratch(Multiplier by, const RowProduct& product) {
  return by == Multiplier::plain ? 0 : product_workspace(product_of(product));
}

Multiply prepare_product(const CudaRuntime& runtime, Multiplier by, const RowProduct& product,
                         void* scratch, const std::string& what, int proposal) {
  return by == Multiplier::plain ? prepare_plain(product)
                                 : prepare_cublaslt(runtime, product, scratch, what, proposal);
}

}  // namespace ridgeline::cuda::recurrent
