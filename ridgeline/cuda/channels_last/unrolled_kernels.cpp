// The gradient of the filters as a cuBLASLt product of dy with the unrolled taps of x (im2col),
// either for the whole batch at once, or for chunks of images whose taps stay in the L2 cache until
// they are multiplied.
#include <algorithm>
#include <memory>

#include "ridgeline/cuda/channels_last/batch_norm.h"
#include "ridgeline/cuda/channels_last/format.h"
#include "ridgeline/cuda/channels_last/image_ops.h"
#include "ridgeline/cuda/channels_last/kernels.h"
#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/bind_mixed_operand.h"
#include "ridgeline/cuda/vendor/product.h"

namespace ridgeline::cuda {
namespace {

constexpr int kAlgorithms = 2;  // how many of cuBLASLt's proposals are used
// The bytes that are unrolled at a time; an H200 has 60 MB of L2.
constexpr int64_t kCachedTaps = int64_t{40} << 20, kMostTaps = int64_t{1} << 30;
constexpr int64_t kMostChunks = 64;
constexpr size_t kAlignment = 256;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
int sms(const Runtime& runtime) { return cuda_runtime(runtime).sms(); }

// The sizes of a gradient that is computed in chunks of images.
struct Unrolled {
  int64_t images = 1, chunks = 1, rows = 0;  // images: per chunk; rows: pixels per chunk
  int64_t taps = 0, width = 0;               // width: taps * channels

  Unrolled(const Conv2dGradW& op, int64_t tap_bytes) {
    const Conv2dShape& shape = op.shape;
    taps = shape.window.h.kernel * shape.window.w.kernel;
    width = taps * shape.in.c;
    const int64_t each = shape.out().pixels() * width * int64_t(size_of(op.x.dtype));
    // All chunks have the same size: the largest divisor that fits.
    chunks = std::clamp<int64_t>((op.n() * each + tap_bytes - 1) / tap_bytes, 1, op.n());
    while (op.n() % chunks != 0) ++chunks;
    images = op.n() / chunks;
    rows = images * shape.out().pixels();
  }

  size_t tap_bytes() const { return aligned(size_t(rows * width) * 2); }
  size_t filter_bytes(const Conv2dGradW& op) const {
    return aligned(size_t(op.dw.shape.numel()) * sizeof(float));
  }
};

// dW[k, taps * c] = dY[rows, k]^T X[rows, taps * c]; a column-major library sees the transpose.
Product product_of(const Conv2dGradW& op, const Unrolled& sizes, Precision precision, bool adds) {
  Product product;
  product.dtype = op.x.dtype;
  product.result = DType::fp32;
  product.precision = precision;
  product.m = sizes.width;
  product.n = op.shape.k;
  product.k = sizes.rows;
  product.b_transposed = true;
  product.adds = adds;
  return product;
}

std::string refuse(const Conv2dGradW& op, const Unrolled& sizes) {
  const Conv2dShape& shape = op.shape;
  if (size_of(op.x.dtype) != 2 || op.dw.dtype != DType::fp32) {
    return "takes bf16 and fp16, with gradients in fp32";
  }
  if (shape.groups != 1) return "takes one group";
  if (shape.in.c % 8 != 0 || shape.k % 8 != 0) return "takes channels by eights";
  if (sizes.chunks > kMostChunks)
    return "images too large, or too odd a batch, to unroll some at a time";
  const std::string reason = refuse_floats({op.x, op.dy, unless_mixed(op.db, op.x.dtype)});
  return reason.empty()
             ? refuse_large({op.n(), shape.in.numel(), shape.out().numel(), sizes.width,
                             op.n() * shape.out().pixels(), sizes.rows * sizes.width / 8})
             : reason;
}

// Which of cuBLASLt's proposals, and how much is unrolled at a time.
struct UnrolledVariant {
  int algorithm;
  int64_t tap_bytes;
};

Cover covers(const RemainingOps& rest, const UnrolledVariant& variant) {
  const int algorithm = variant.algorithm;
  const auto* op = rest.get<Conv2dGradW>(0);
  if (op == nullptr) return no_such_op(Conv2dGradW::kName);
  const CublasLt& library = cuda_runtime(rest.runtime).cublaslt();
  if (!library.refusal().empty()) return Cover::no(library.refusal());
  const Unrolled sizes(*op, variant.tap_bytes);
  const std::string reason = refuse(*op, sizes);
  if (!reason.empty()) return Cover::no(reason);
  const Product product = product_of(*op, sizes, rest.program.precision, false);
  if (PreparedProduct(library, product, nullptr, algorithm + 1).algorithms() <= size_t(algorithm)) {
    return Cover::no(fmt::format("cuBLASLt offers fewer than {} algorithms", algorithm + 1));
  }
  Cover cover = Cover::of(1);
  cover.workspace = kAlignment + sizes.tap_bytes() + sizes.filter_bytes(*op) +
                    aligned(product_workspace(product));
  if (op->db) {
    cover.workspace +=
        norm_workspace(op->n() * op->shape.out().pixels(), int(op->shape.k), sms(rest.runtime));
  }
  use_channels_last(cover.reads, op->x, {op->shape.in.c, op->shape.in.pixels()});
  use_channels_last(cover.reads, op->dy, {op->shape.k, op->shape.out().pixels()});
  return cover;
}

RowTaps taps_of(const Conv2dShape& shape, int64_t images) {
  const Image in = shape.in, out = shape.out();
  const Slide &down = shape.window.h, &right = shape.window.w;
  return {
      images,        int(in.h),        int(in.w),          int(in.c),          int(out.h),
      int(out.w),    int(down.kernel), int(right.kernel),  int(down.stride),   int(right.stride),
      int(down.pad), int(right.pad),   int(down.dilation), int(right.dilation)};
}

std::unique_ptr<Step> prepare(const Span& span, const Binding& binding,
                              const UnrolledVariant& variant) {
  const int algorithm = variant.algorithm;
  const auto& op = span.get<Conv2dGradW>(0);
  const Unrolled sizes(op, variant.tap_bytes);
  const CublasLt& library = cuda_runtime(binding.runtime()).cublaslt();
  const auto make = [&](bool adds) {
    return std::make_shared<PreparedProduct>(
        library, product_of(op, sizes, span.program.precision, adds), nullptr, algorithm + 1);
  };
  const auto first = make(false), more = make(true);
  if (first->algorithms() <= size_t(algorithm) || more->algorithms() <= size_t(algorithm)) {
    throw_error(ErrorKind::device, "{}: cuBLASLt no longer offers algorithm {}",
                describe(span.op(0)), algorithm);
  }
  auto* const columns =
      reinterpret_cast<std::byte*>(aligned(reinterpret_cast<size_t>(binding.workspace())));
  auto* const filters = reinterpret_cast<float*>(columns + sizes.tap_bytes());
  std::byte* const scratch = columns + sizes.tap_bytes() + sizes.filter_bytes(op);
  auto* const sums = reinterpret_cast<float*>(
      scratch + aligned(product_workspace(product_of(op, sizes, span.program.precision, false))));
  return dispatch_device_half(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    const T *x = binding.read(op.x).as<T>(), *dy = binding.read(op.dy).as<T>();
    const MixedOut<T> db = write_mixed<T>(binding, op.db, op.x.dtype);
    return launch_step(
        binding, describe(span.op(0)),
        [=, taps = taps_of(op.shape, sizes.images), dw = binding.write(op.dw).template as<float>(),
         k = int(op.shape.k), c = int(op.shape.in.c), in = op.shape.in.numel(),
         out = op.shape.out().numel(), pixels = op.n() * op.shape.out().pixels(),
         count = sms(binding.runtime())](cudaStream_t stream) {
          auto* const unrolled = reinterpret_cast<T*>(columns);
          for (int64_t chunk = 0; chunk < sizes.chunks; ++chunk) {
            const int64_t image = chunk * sizes.images;
            const cudaError_t status = launch_row_taps<T>(taps, x + image * in, unrolled, stream);
            if (status != cudaSuccess) return status;
            const ProductOperands operands{unrolled, dy + image * out, filters, nullptr};
            const auto& product = chunk == 0 ? first : more;
            if (product->run(size_t(algorithm), operands, scratch, stream) !=
                CUBLAS_STATUS_SUCCESS) {
              return cudaErrorLaunchFailure;
            }
          }
          const cudaError_t status =
              sizes.taps == 1
                  ? cudaMemcpyAsync(dw, filters, size_t(k) * size_t(c) * sizeof(float),
                                    cudaMemcpyDeviceToDevice, stream)
                  : launch_filters_first<float>(filters, dw, k, c, int(sizes.taps), stream);
          if (status != cudaSuccess || !db) return status;
          return launch_row_sums<T>(dy, db, pixels, k, sums, count, stream);
        });
  });
}

}  // namespace

KernelTable channels_last_unrolled_kernels() {
  KernelTable table;
  for (const bool whole : {false, true}) {
    for (int algorithm = 0; algorithm < kAlgorithms; ++algorithm) {
      table.push_back(cuda_kernel(fmt::format("cuda.conv2d_grad_w.unrolled{}_channels_last.{}",
                                              whole ? "_whole" : "", algorithm),
                                  covers, prepare,
                                  UnrolledVariant{algorithm, whole ? kMostTaps : kCachedTaps},
                                  {.precisions = kHalves,
                                   .library = Library::cublaslt,
                                   .further_proposal = algorithm > 0}));
    }
  }
  return table;
}

}  // namespace ridgeline::cuda
