// Convolutions as a matrix product of their unrolled taps (im2col).
#include <algorithm>

#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/conv.h"
#include "ridgeline/cuda/plain/gemm.h"
#include "ridgeline/cuda/plain/geometry.h"
#include "ridgeline/cuda/plain/kernels.h"

namespace ridgeline::cuda {
namespace {

constexpr size_t kMostBytes = size_t{1} << 30;  // of unrolled taps at a time
constexpr size_t kAlignment = 256;

size_t padded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// The product for `images` images: rows x out, over the taps of a filter.
struct ImageChunk {
  int64_t images, rows, taps, out;
  size_t columns, channels_last;  // bytes of the unrolled taps, and of the channels-last outputs
};

ImageChunk chunk_of(const Conv2dShape& shape, int64_t n, size_t width, bool whole) {
  ImageChunk chunk;
  const int64_t pixels = shape.out().pixels();
  chunk.taps = shape.weight().numel() / shape.k;
  chunk.out = shape.k;
  const auto each = int64_t(size_t(pixels * (chunk.taps + chunk.out)) * width);
  chunk.images = whole ? n : std::clamp<int64_t>(int64_t(kMostBytes) / each, 1, n);
  chunk.rows = chunk.images * pixels;
  chunk.columns = padded(size_t(chunk.rows * chunk.taps) * width);
  chunk.channels_last = padded(size_t(chunk.rows * chunk.out) * width);
  return chunk;
}

enum class Pass { forward, data, filter };

// The tiling of the product D[m, n] over k.
GemmTiling tiling_of(const ImageChunk& chunk, Pass pass, DType dtype, const Runtime& runtime) {
  const size_t width = dtype == DType::fp64 ? 8 : 4;
  const int sms = cuda_runtime(runtime).sms();
  switch (pass) {
    case Pass::forward:
      return gemm_tiling(chunk.rows, chunk.out, chunk.taps, width, sms);
    case Pass::data:
      return gemm_tiling(chunk.rows, chunk.taps, chunk.out, width, sms);
    case Pass::filter:
      break;
  }
  return gemm_tiling(chunk.out, chunk.taps, chunk.rows, width, sms);
}

Cover cover(const RemainingOps& rest, const Conv2dShape& shape, int64_t n, const Values& values,
            Pass pass) {
  std::string reason = refuse_floats(values);
  if (shape.groups != 1) reason = "takes one group";
  if (reason.empty()) {
    reason = refuse_large({n, shape.in.numel(), shape.out().numel(), shape.weight().numel()});
  }
  if (!reason.empty()) return Cover::no(reason);
  const DType dtype = values[0].dtype;
  const ImageChunk chunk = chunk_of(shape, n, size_of(dtype), pass == Pass::filter);
  reason = refuse_large({chunk.rows, chunk.taps});
  if (chunk.columns + chunk.channels_last > 2 * kMostBytes)
    reason = "the unrolled taps are too large";
  return cover_unless(
      reason, 1,
      chunk.columns + chunk.channels_last + tiling_of(chunk, pass, dtype, rest.runtime).workspace);
}

// The parts of the workspace.
template <typename T>
struct UnrolledWorkspace {
  T *columns, *channels_last;
  void* partial;

  UnrolledWorkspace(std::byte* workspace, const ImageChunk& chunk)
      : columns(reinterpret_cast<T*>(workspace)),
        channels_last(reinterpret_cast<T*>(workspace + chunk.columns)),
        partial(workspace + chunk.columns + chunk.channels_last) {}
};

cudaError_t first_error(std::initializer_list<cudaError_t> errors) {
  for (const cudaError_t error : errors) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

Cover covers_conv(const RemainingOps& rest) {
  const auto* op = rest.get<Conv2d>(0);
  if (op == nullptr) return no_such_op(Conv2d::kName);
  return cover(rest, op->shape, op->n(),
               {op->x, op->w, unless_accumulator(op->b, op->x.dtype), op->y}, Pass::forward);
}

std::unique_ptr<Step> prepare_conv(const Span& span, const Binding& binding) {
  const auto& op = span.get<Conv2d>(0);
  const ImageChunk chunk = chunk_of(op.shape, op.n(), size_of(op.x.dtype), false);
  const GemmTiling tiling = tiling_of(chunk, Pass::forward, op.x.dtype, binding.runtime());
  return dispatch_device_float(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    const UnrolledWorkspace<T> at(binding.workspace(), chunk);
    LinearArgs<T> product{};
    product.x = at.columns;
    product.w = binding.read(op.w).as<T>();
    if (is_accumulator(op.b, op.x.dtype)) {
      product.acc_b = binding.read(op.b).as<float>();
    } else {
      product.b = binding.read(op.b).as<T>();
    }
    product.y = at.channels_last;
    product.in = int(chunk.taps);
    product.out = int(chunk.out);
    product.activation = ActivationFn::none;
    return launch_step(
        binding, describe(span.op(0)),
        [=, g = geometry_of(op.shape, op.n()), x = binding.read(op.x).as<T>(),
         y = binding.write(op.y).as<T>()](cudaStream_t stream) {
          for (int first = 0; first < g.n; first += int(chunk.images)) {
            const int count = std::min(int(chunk.images), g.n - first);
            LinearArgs<T> now = product;
            now.n = count * g.p * g.q;
            const cudaError_t error = first_error(
                {launch_unroll<T>(g, x, at.columns, first, count, stream),
                 launch_linear<T>(now, tiling, at.partial, stream),
                 launch_channels_first<T>(g, at.channels_last, y, first, count, stream)});
            if (error != cudaSuccess) return error;
          }
          return cudaSuccess;
        });
  });
}

Cover covers_grad_x(const RemainingOps& rest) {
  const auto* op = rest.get<Conv2dGradX>(0);
  if (op == nullptr) return no_such_op(Conv2dGradX::kName);
  if (size_of(op->dy.dtype) == 2) return Cover::no("would round the taps' gradients to halves");
  return cover(rest, op->shape, op->n(), {op->dy, op->w, op->dx}, Pass::data);
}

std::unique_ptr<Step> prepare_grad_x(const Span& span, const Binding& binding) {
  const auto& op = span.get<Conv2dGradX>(0);
  const ImageChunk chunk = chunk_of(op.shape, op.n(), size_of(op.dy.dtype), false);
  const GemmTiling tiling = tiling_of(chunk, Pass::data, op.dy.dtype, binding.runtime());
  return dispatch_device_float(op.dy.dtype, [&](auto type) {
    using T = decltype(type);
    const UnrolledWorkspace<T> at(binding.workspace(), chunk);
    LinearGradXArgs<T> product{};
    product.dy = at.channels_last;
    product.w = binding.read(op.w).as<T>();
    product.dx = at.columns;
    product.in = int(chunk.taps);
    product.out = int(chunk.out);
    return launch_step(
        binding, describe(span.op(0)),
        [=, g = geometry_of(op.shape, op.n()), dy = binding.read(op.dy).as<T>(),
         dx = binding.write(op.dx).as<T>()](cudaStream_t stream) {
          for (int first = 0; first < g.n; first += int(chunk.images)) {
            const int count = std::min(int(chunk.images), g.n - first);
            LinearGradXArgs<T> now = product;
            now.n = count * g.p * g.q;
            const cudaError_t error =
                first_error({launch_channels_last<T>(g, dy, at.channels_last, first, count, stream),
                             launch_linear_grad_x<T>(now, tiling, at.partial, stream),
                             launch_roll_up<T>(g, at.columns, dx, first, count, stream)});
            if (error != cudaSuccess) return error;
          }
          return cudaSuccess;
        });
  });
}

Cover covers_grad_w(const RemainingOps& rest) {
  const auto* op = rest.get<Conv2dGradW>(0);
  if (op == nullptr) return no_such_op(Conv2dGradW::kName);
  const DType dtype = op->x.dtype;
  if (op->db && is_accumulator(op->db, dtype) != is_accumulator(op->dw, dtype)) {
    return Cover::no("takes gradients of one type");
  }
  return cover(
      rest, op->shape, op->n(),
      {op->x, op->dy, unless_accumulator(op->dw, dtype), unless_accumulator(op->db, dtype)},
      Pass::filter);
}

std::unique_ptr<Step> prepare_grad_w(const Span& span, const Binding& binding) {
  const auto& op = span.get<Conv2dGradW>(0);
  const ImageChunk chunk = chunk_of(op.shape, op.n(), size_of(op.x.dtype), true);
  const GemmTiling tiling = tiling_of(chunk, Pass::filter, op.x.dtype, binding.runtime());
  return dispatch_device_float(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    const UnrolledWorkspace<T> at(binding.workspace(), chunk);
    LinearGradWArgs<T> product{};
    product.x = at.columns;
    product.dy = at.channels_last;
    if (is_accumulator(op.dw, op.x.dtype)) {
      using Accumulator = typename LinearGradWArgs<T>::Accumulator;
      product.acc_dw = binding.write(op.dw).as<Accumulator>();
      product.acc_db = binding.write(op.db).as<Accumulator>();
    } else {
      product.dw = binding.write(op.dw).as<T>();
      product.db = binding.write(op.db).as<T>();
    }
    product.n = int(chunk.rows);
    product.in = int(chunk.taps);
    product.out = int(chunk.out);
    return launch_step(
        binding, describe(span.op(0)),
        [=, g = geometry_of(op.shape, op.n()), x = binding.read(op.x).as<T>(),
         dy = binding.read(op.dy).as<T>()](cudaStream_t stream) {
          return first_error({launch_unroll<T>(g, x, at.columns, 0, g.n, stream),
                              launch_channels_last<T>(g, dy, at.channels_last, 0, g.n, stream),
                              launch_linear_grad_w<T>(product, tiling, at.partial, stream)});
        });
  });
}

}  // namespace

KernelTable unrolled_conv_kernels() {
  return concurrent({cuda_kernel("cuda.conv2d.unrolled", covers_conv, prepare_conv),
                     cuda_kernel("cuda.conv2d_grad_x.unrolled", covers_grad_x, prepare_grad_x,
                                 {.precisions = kFp64AndFp32}),
                     cuda_kernel("cuda.conv2d_grad_w.unrolled", covers_grad_w, prepare_grad_w)});
}

}  // namespace ridgeline::cuda
