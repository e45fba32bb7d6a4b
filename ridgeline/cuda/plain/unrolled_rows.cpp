// Convolutions as a matrix product of their unrolled taps.
#include <algorithm>

#include "ridgeline/cuda/plain/conv.h"
#include "ridgeline/cuda/plain/gemm.h"
#include "ridgeline/cuda/plain/geometry.h"
#include "ridgeline/cuda/plain/rows.h"
#include "ridgeline/cuda/row.h"

namespace ridgeline::cuda {
namespace {

constexpr size_t kMostBytes = size_t{1} << 30;  // of unrolled taps at a time
constexpr size_t kAlignment = 256;

size_t padded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// The product of `images` images: rows x out, over the taps of a filter.
struct Piece {
  int64_t images, rows, taps, out;
  size_t columns, turned;  // bytes of the unrolled taps, and of the outputs, channels last
};

Piece piece_of(const Conv2dShape& shape, int64_t n, size_t width, bool whole) {
  Piece piece;
  const int64_t pixels = shape.out().pixels();
  piece.taps = shape.weight().numel() / shape.k;
  piece.out = shape.k;
  const auto each = int64_t(size_t(pixels * (piece.taps + piece.out)) * width);
  piece.images = whole ? n : std::clamp<int64_t>(int64_t(kMostBytes) / each, 1, n);
  piece.rows = piece.images * pixels;
  piece.columns = padded(size_t(piece.rows * piece.taps) * width);
  piece.turned = padded(size_t(piece.rows * piece.out) * width);
  return piece;
}

enum class Pass { forward, data, filter };

// The product's tiling: D[m, n] over k.
GemmTiling tiling_of(const Piece& piece, Pass pass, DType dtype, const Runtime& runtime) {
  const size_t width = dtype == DType::fp64 ? 8 : 4;
  const int processors = cuda_runtime(runtime).processors();
  switch (pass) {
    case Pass::forward:
      return gemm_tiling(piece.rows, piece.out, piece.taps, 64, width, processors);
    case Pass::data:
      return gemm_tiling(piece.rows, piece.taps, piece.out, 64, width, processors);
    case Pass::filter:
      break;
  }
  return gemm_tiling(piece.out, piece.taps, piece.rows, 64, width, processors);
}

Cover cover(const Rest& rest, const Conv2dShape& shape, int64_t n, const Values& values,
            Pass pass) {
  std::string reason = refuse_floats(values);
  if (shape.groups != 1) reason = "takes one group";
  if (reason.empty()) {
    reason = refuse_large({n, shape.in.numel(), shape.out().numel(), shape.weight().numel()});
  }
  if (!reason.empty()) return Cover::no(reason);
  const DType dtype = values[0].dtype;
  const Piece piece = piece_of(shape, n, size_of(dtype), pass == Pass::filter);
  reason = refuse_large({piece.rows, piece.taps});
  if (piece.columns + piece.turned > 2 * kMostBytes) reason = "the unrolled taps are too large";
  return cover_unless(
      reason, 1,
      piece.columns + piece.turned + tiling_of(piece, pass, dtype, rest.runtime).workspace);
}

// The workspace, cut up.
template <typename T>
struct Pieces {
  T *columns, *turned;
  void* partial;

  Pieces(std::byte* workspace, const Piece& piece)
      : columns(reinterpret_cast<T*>(workspace)),
        turned(reinterpret_cast<T*>(workspace + piece.columns)),
        partial(workspace + piece.columns + piece.turned) {}
};

cudaError_t first_error(std::initializer_list<cudaError_t> errors) {
  for (const cudaError_t error : errors) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

Cover covers_conv(const Rest& rest) {
  const auto* op = rest.get<Conv2d>(0);
  if (op == nullptr) return no_such_op(Conv2d::kName);
  return cover(rest, op->shape, op->n(), {op->x, op->w, unless_wide(op->b, op->x.dtype), op->y},
               Pass::forward);
}

std::unique_ptr<Step> prepare_conv(const Span& span, const Binding& binding) {
  const auto& op = span.get<Conv2d>(0);
  const Piece piece = piece_of(op.shape, op.n(), size_of(op.x.dtype), false);
  const GemmTiling tiling = tiling_of(piece, Pass::forward, op.x.dtype, binding.runtime());
  return dispatch_device_float(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    const Pieces<T> at(binding.workspace(), piece);
    LinearArgs<T> product{};
    product.x = at.columns;
    product.w = binding.read(op.w).as<T>();
    if (is_wide(op.b, op.x.dtype)) {
      product.wide_b = binding.read(op.b).as<float>();
    } else {
      product.b = binding.read(op.b).as<T>();
    }
    product.y = at.turned;
    product.in = int(piece.taps);
    product.out = int(piece.out);
    product.curve = Curve::none;
    return launch_step(binding, describe(span.op(0)),
                       [=, g = geometry_of(op.shape, op.n()), x = binding.read(op.x).as<T>(),
                        y = binding.write(op.y).as<T>()](cudaStream_t stream) {
                         for (int first = 0; first < g.n; first += int(piece.images)) {
                           const int count = std::min(int(piece.images), g.n - first);
                           LinearArgs<T> now = product;
                           now.n = count * g.p * g.q;
                           const cudaError_t error = first_error(
                               {launch_unroll<T>(g, x, at.columns, first, count, stream),
                                launch_linear<T>(now, tiling, at.partial, stream),
                                launch_channels_first<T>(g, at.turned, y, first, count, stream)});
                           if (error != cudaSuccess) return error;
                         }
                         return cudaSuccess;
                       });
  });
}

Cover covers_grad_x(const Rest& rest) {
  const auto* op = rest.get<Conv2dGradX>(0);
  if (op == nullptr) return no_such_op(Conv2dGradX::kName);
  if (size_of(op->dy.dtype) == 2) return Cover::no("would round the taps' gradients to halves");
  return cover(rest, op->shape, op->n(), {op->dy, op->w, op->dx}, Pass::data);
}

std::unique_ptr<Step> prepare_grad_x(const Span& span, const Binding& binding) {
  const auto& op = span.get<Conv2dGradX>(0);
  const Piece piece = piece_of(op.shape, op.n(), size_of(op.dy.dtype), false);
  const GemmTiling tiling = tiling_of(piece, Pass::data, op.dy.dtype, binding.runtime());
  return dispatch_device_float(op.dy.dtype, [&](auto type) {
    using T = decltype(type);
    const Pieces<T> at(binding.workspace(), piece);
    LinearGradXArgs<T> product{};
    product.dy = at.turned;
    product.w = binding.read(op.w).as<T>();
    product.dx = at.columns;
    product.in = int(piece.taps);
    product.out = int(piece.out);
    return launch_step(binding, describe(span.op(0)),
                       [=, g = geometry_of(op.shape, op.n()), dy = binding.read(op.dy).as<T>(),
                        dx = binding.write(op.dx).as<T>()](cudaStream_t stream) {
                         for (int first = 0; first < g.n; first += int(piece.images)) {
                           const int count = std::min(int(piece.images), g.n - first);
                           LinearGradXArgs<T> now = product;
                           now.n = count * g.p * g.q;
                           const cudaError_t error = first_error(
                               {launch_channels_last<T>(g, dy, at.turned, first, count, stream),
                                launch_linear_grad_x<T>(now, tiling, at.partial, stream),
                                launch_roll_up<T>(g, at.columns, dx, first, count, stream)});
                           if (error != cudaSuccess) return error;
                         }
                         return cudaSuccess;
                       });
  });
}

Cover covers_grad_w(const Rest& rest) {
  const auto* op = rest.get<Conv2dGradW>(0);
  if (op == nullptr) return no_such_op(Conv2dGradW::kName);
  const DType dtype = op->x.dtype;
  if (op->db && is_wide(op->db, dtype) != is_wide(op->dw, dtype)) {
    return Cover::no("takes gradients of one type");
  }
  return cover(rest, op->shape, op->n(),
               {op->x, op->dy, unless_wide(op->dw, dtype), unless_wide(op->db, dtype)},
               Pass::filter);
}

std::unique_ptr<Step> prepare_grad_w(const Span& span, const Binding& binding) {
  const auto& op = span.get<Conv2dGradW>(0);
  const Piece piece = piece_of(op.shape, op.n(), size_of(op.x.dtype), true);
  const GemmTiling tiling = tiling_of(piece, Pass::filter, op.x.dtype, binding.runtime());
  return dispatch_device_float(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    const Pieces<T> at(binding.workspace(), piece);
    LinearGradWArgs<T> product{};
    product.x = at.columns;
    product.dy = at.turned;
    if (is_wide(op.dw, op.x.dtype)) {
      using Wide = typename LinearGradWArgs<T>::Wide;
      product.wide_dw = binding.write(op.dw).as<Wide>();
      product.wide_db = binding.write(op.db).as<Wide>();
    } else {
      product.dw = binding.write(op.dw).as<T>();
      product.db = binding.write(op.db).as<T>();
    }
    product.n = int(piece.rows);
    product.in = int(piece.taps);
    product.out = int(piece.out);
    return launch_step(
        binding, describe(span.op(0)),
        [=, g = geometry_of(op.shape, op.n()), x = binding.read(op.x).as<T>(),
         dy = binding.read(op.dy).as<T>()](cudaStream_t stream) {
          return first_error({launch_unroll<T>(g, x, at.columns, 0, g.n, stream),
                              launch_channels_last<T>(g, dy, at.turned, 0, g.n, stream),
                              launch_linear_grad_w<T>(product, tiling, at.partial, stream)});
        });
  });
}

}  // namespace

Table unrolled_conv_rows() {
  return {cuda_row("cuda.conv2d.unrolled", covers_conv, prepare_conv),
          cuda_row("cuda.conv2d_grad_x.unrolled", covers_grad_x, prepare_grad_x),
          cuda_row("cuda.conv2d_grad_w.unrolled", covers_grad_w, prepare_grad_w)};
}

}  // namespace ridgeline::cuda
