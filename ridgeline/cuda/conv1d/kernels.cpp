#include "ridgeline/cuda/conv1d/kernels.h"

#include "ridgeline/cuda/conv/kernels.h"
#include "ridgeline/cuda/conv1d/conv1d.h"
#include "ridgeline/cuda/conv1d/norm_pool.h"
#include "ridgeline/cuda/conv1d/one_hot.h"
#include "ridgeline/cuda/conv1d/shapes.h"
#include "ridgeline/cuda/conv1d/simt.h"
#include "ridgeline/cuda/conv1d/spans.h"
#include "ridgeline/cuda/conv1d/transpose_signal.h"
#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/bind_mixed_operand.h"

namespace ridgeline::cuda {
namespace {

OneHotBlockShape block_shape(const OneHotConv1d& op) {
  return {int(op.n()), int(op.length()), int(op.symbols()), int(op.out()), int(op.kernel())};
}

Cover covers_one_hot_block(const RemainingOps& rest) {
  const auto* conv = rest.get<OneHotConv1d>(0);
  if (conv == nullptr) return no_such_op(OneHotConv1d::kName);
  const auto block = norm_pool_at(rest, 1, conv->y);
  if (!block) return Cover::no("no layer_norm, relu and pool of 3 follow");
  const DType dtype = conv->y.dtype;
  std::string reason = is_signal_type(dtype) ? "" : "takes halves and fp32";
  if (reason.empty()) reason = refuse_norm(*block->norm);
  if (reason.empty()) {
    reason = refuse_floats({conv->y, conv->w, unless_mixed(conv->b, dtype), block->norm->gamma});
  }
  if (reason.empty()) reason = refuse_large({conv->n(), conv->length(), conv->y.shape[1]});
  if (reason.empty()) {
    reason = refuse_one_hot_block(block_shape(*conv), size_of(dtype), shared_memory(rest.runtime));
  }
  if (!reason.empty()) return Cover::no(reason);
  Cover cover = cover_skipping(rest, {conv->y, block->norm->y, block->relu->y}, 4);
  if (cover.ops == 0) return cover;
  cover.workspace = one_hot_block_workspace(block_shape(*conv), size_of(dtype));
  cover.writes.push_back(signal_use(block->pool->y, conv->out(), conv->steps() / 3));
  return cover;
}

std::unique_ptr<Step> prepare_one_hot_block(const Span& span, const Binding& binding) {
  const auto& conv = span.get<OneHotConv1d>(0);
  const auto& norm = span.get<LayerNorm>(1);
  return dispatch_factor(conv.y.dtype, [&](auto type) {
    using T = decltype(type);
    OneHotBlockArgs<T> args;
    args.shape = block_shape(conv);
    args.codes.token = binding.read(conv.token).as<int32_t>();
    args.w = binding.read(conv.w).as<T>();
    args.bias = read_mixed<T>(binding, conv.b, conv.y.dtype);
    args.gamma = binding.read(norm.gamma).as<T>();
    args.beta = binding.read(norm.beta).as<T>();
    args.epsilon = float(norm.epsilon);
    args.y = binding.write(span.get<MaxPool>(3).y).as<T>();
    return launch_step(
        binding, describe(span.op(0)),
        [args, workspace = binding.workspace(), count = sms(binding)](cudaStream_t stream) {
          return launch_one_hot_block<T>(args, workspace, count, stream);
        });
  });
}

// A convolution along a row, with relu and pool if they follow and no other op reads the values
// between.
struct Conv1d {
  const Conv2d* conv = nullptr;
  bool relu = false;
  const MaxPool* pool = nullptr;
  Value y;
  Values inner;
  size_t ops = 1;
};

Conv1d conv1d_at(const RemainingOps& rest, const Conv2d& conv) {
  Conv1d found;
  found.conv = &conv;
  found.y = conv.y;
  const auto take = [&](const Value& next) {
    if (!rest.dead_after(found.y, found.ops + 1)) return false;
    found.inner.push_back(found.y);
    found.y = next;
    ++found.ops;
    return true;
  };
  const auto* activation = rest.get<Activation>(1);
  if (is_relu(activation, found.y)) found.relu = take(activation->y);
  const auto* pool = rest.get<MaxPool>(found.ops);
  if (pool != nullptr && pool->x.id == found.y.id && is_pool3(pool->shape) && take(pool->y)) {
    found.pool = pool;
  }
  return found;
}

// The pitch of y's rows follows from that of x and must match the pitch for y's length.
std::string refuse_pitch(const Conv1d& op) {
  const int pool = op.pool != nullptr ? 3 : 1;
  const int pitch = signal_pitch(op.conv->shape.in.w);
  const int64_t length = op.conv->shape.out().w / pool;
  return pitch % pool == 0 && signal_pitch(length) == pitch / pool
             ? ""
             : "the lengths before and after have different pitches";
}

enum class How { wgmma, fp32 };

std::string refuse_how(const RemainingOps& rest, const Conv1d& op, How how) {
  const DType dtype = op.conv->x.dtype;
  const Conv2dShape& shape = op.conv->shape;
  const int pitch = signal_pitch(shape.in.w), pool = op.pool != nullptr ? 3 : 1;
  const int channels = int(shape.in.c), out = int(shape.k), taps = int(shape.window.w.kernel);
  if (how == How::fp32) {
    if (dtype != DType::fp32) return "takes fp32";
    // A block of the grid's y dimension takes at least 126 rows.
    if (op.conv->n() * pitch > int64_t{65535} * 126) return "has too many rows for one launch";
    return refuse_conv1d_fp32(pitch, channels, out, taps, pool);
  }
  if (!is_signal_type(dtype)) return "takes halves and tf32";
  if (dtype == DType::fp32 && rest.program.precision != Precision::tf32) {
    return "rounds to tf32, which this run did not ask for";
  }
  return refuse_conv1d(pitch, channels, out, taps, pool, size_of(dtype));
}

Cover covers_conv1d(const RemainingOps& rest, How how) {
  const auto* conv = rest.get<Conv2d>(0);
  if (conv == nullptr) return no_such_op(Conv2d::kName);
  const Conv1d op = conv1d_at(rest, *conv);
  const Conv2dShape& shape = conv->shape;
  std::string reason = refuse_signal_conv(shape);
  if (reason.empty()) {
    reason = refuse_floats({conv->x, conv->w, unless_mixed(conv->b, conv->x.dtype), op.y});
  }
  if (reason.empty()) {
    reason = refuse_large({shape.in.numel(), shape.out().numel(), shape.weight().numel(),
                           conv->n() * signal_pitch(shape.in.w)});
  }
  if (reason.empty()) reason = refuse_pitch(op);
  if (reason.empty()) reason = refuse_how(rest, op, how);
  if (!reason.empty()) return Cover::no(reason);
  Cover cover = cover_skipping(rest, op.inner, op.ops);
  cover.workspace = conv1d_workspace(int(shape.in.c), int(shape.k), int(shape.window.w.kernel),
                                     size_of(conv->x.dtype));
  cover.reads.push_back(signal_use(conv->x, shape.in.c, shape.in.w));
  cover.writes.push_back(signal_use(op.y, shape.k, shape.out().w / (op.pool != nullptr ? 3 : 1)));
  return cover;
}

std::unique_ptr<Step> prepare_conv1d_kernel(const Span& span, const Binding& binding, How how) {
  const auto& conv = span.get<Conv2d>(0);
  const auto* pool = std::get_if<MaxPool>(&span.op(span.size() - 1));
  const bool relu = span.size() > 1 && std::holds_alternative<Activation>(span.op(1));
  const Value& y = pool != nullptr ? pool->y : relu ? span.get<Activation>(1).y : conv.y;
  return dispatch_factor(conv.x.dtype, [&](auto type) -> std::unique_ptr<Step> {
    using T = decltype(type);
    Conv1dArgs<T> args;
    args.n = int(conv.n());
    args.pitch = signal_pitch(conv.shape.in.w);
    args.channels = int(conv.shape.in.c);
    args.out = int(conv.shape.k);
    args.taps = int(conv.shape.window.w.kernel);
    args.pool = pool != nullptr ? 3 : 1;
    args.relu = relu;
    args.x = binding.read(conv.x).as<T>();
    args.w = binding.read(conv.w).as<T>();
    args.bias = read_mixed<T>(binding, conv.b, conv.x.dtype);
    args.y = binding.write(y).as<T>();
    if constexpr (sizeof(T) == 4) {
      if (how == How::fp32) {
        return launch_step(binding, describe(span.op(0)),
                           [args, workspace = binding.workspace()](cudaStream_t stream) {
                             return launch_conv1d_fp32(args, workspace, stream);
                           });
      }
    }
    return launch_step(binding, describe(span.op(0)),
                       prepare_conv1d<T>(args, binding.workspace(), sms(binding)));
  });
}

Cover covers_norm_pool(const RemainingOps& rest) {
  const auto* norm = rest.get<LayerNorm>(0);
  if (norm == nullptr) return no_such_op(LayerNorm::kName);
  const auto found = norm_pool_at(rest, 0, norm->x);
  if (!found) return Cover::no("no relu and pool of 3 follow");
  const Image in = found->pool->shape.in;
  const DType dtype = norm->x.dtype;
  std::string reason = is_signal_type(dtype) ? "" : "takes halves and fp32";
  if (reason.empty()) reason = refuse_norm(*norm);
  if (reason.empty()) reason = refuse_large({norm->x.shape[0], in.numel()});
  if (reason.empty()) reason = refuse_norm_pool(int(in.w), int(in.c), size_of(dtype));
  if (!reason.empty()) return Cover::no(reason);
  Cover cover = cover_skipping(rest, {norm->y, found->relu->y}, 3);
  if (cover.ops == 0) return cover;
  cover.workspace = norm_pool_workspace(int(in.w), int(in.c), size_of(dtype));
  cover.reads.push_back(signal_use(norm->x, in.c, in.w));
  return cover;
}

std::unique_ptr<Step> prepare_norm_pool(const Span& span, const Binding& binding) {
  const auto& norm = span.get<LayerNorm>(0);
  const auto& pool = span.get<MaxPool>(2);
  return dispatch_factor(norm.x.dtype, [&](auto type) {
    using T = decltype(type);
    const Image in = pool.shape.in;
    const NormPoolArgs<T> args{int(norm.x.shape[0]),
                               int(in.w),
                               signal_pitch(in.w),
                               int(in.c),
                               binding.read(norm.x).as<T>(),
                               binding.read(norm.gamma).as<T>(),
                               binding.read(norm.beta).as<T>(),
                               float(norm.epsilon),
                               binding.write(pool.y).as<T>()};
    return launch_step(
        binding, describe(span.op(0)),
        [args, workspace = binding.workspace(), count = sms(binding)](cudaStream_t stream) {
          return launch_norm_pool<T>(args, workspace, count, stream);
        });
  });
}

bool converts_signal(const Value& value, const Format& from, const Format& to) {
  if (from.empty() == to.empty() || !is_signal_type(value.dtype)) return false;
  const auto signal = parse_signal(from.empty() ? to : from);
  return signal && value.shape.numel() == value.shape[0] * signal->channels * signal->length;
}

std::unique_ptr<Step> prepare_transpose(const Span&, const Binding& binding) {
  const Value value = binding.converted();
  const bool to_rows = binding.from().empty();
  const Signal signal = *parse_signal(to_rows ? binding.to() : binding.from());
  const SignalTranspose shape{int(value.shape[0]), signal.channels, signal.length,
                              signal_pitch(signal.length)};
  return dispatch_factor(value.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(binding, "transpose_signal",
                       [shape, to_rows, from = binding.read(value).as<T>(),
                        to = binding.write(value).as<T>()](cudaStream_t stream) {
                         return launch_transpose_signal<T>(shape, to_rows, from, to, stream);
                       });
  });
}

}  // namespace

KernelTable signal_kernels() {
  constexpr Traits kSignals{.precisions = kStoredInFp32 | kHalves};
  KernelTable table{
      cuda_kernel("cuda.one_hot_norm_relu_pool.gather", covers_one_hot_block, prepare_one_hot_block,
                  kSignals),
      cuda_kernel("cuda.norm_relu_pool.row_wise", covers_norm_pool, prepare_norm_pool, kSignals),
      cuda_kernel("cuda.conv1d.wgmma", covers_conv1d, prepare_conv1d_kernel, How::wgmma, kWgmma),
      cuda_kernel("cuda.conv1d.fp32", covers_conv1d, prepare_conv1d_kernel, How::fp32, kFp32Fma)};
  Kernel transpose = cuda_kernel("cuda.transpose_signal.plain", {}, prepare_transpose);
  transpose.converts = converts_signal;
  table.push_back(std::move(transpose));
  return table;
}

}  // namespace ridgeline::cuda
