#include "ridgeline/cuda/channels_last/format.h"
#include "ridgeline/cuda/channels_last/image_ops.h"
#include "ridgeline/cuda/channels_last/kernels.h"
#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/transpose.h"

namespace ridgeline::cuda {
namespace {

std::string refuse(const Values& values, int64_t channels) {
  if (size_of(values[0].dtype) != 2) return "takes bf16 and fp16";
  if (channels % 8 != 0) return "takes channels by eights";
  if (values[0].shape.numel() == 0) return "an operand is empty";
  return refuse_floats(values);
}

// Whether the windows neither overlap nor leave out pixels.
bool tiles(const PoolShape& shape) {
  const auto whole = [](const Slide& slide, int64_t extent) {
    return slide.stride == slide.kernel && slide.pad == 0 && slide.dilation == 1 &&
           extent % slide.kernel == 0;
  };
  return whole(shape.window.h, shape.in.h) && whole(shape.window.w, shape.in.w);
}

TilePool tile_pool(const PoolShape& shape, int64_t n) {
  return {n,
          int(shape.in.h),
          int(shape.in.w),
          int(shape.in.c),
          int(shape.window.h.kernel),
          int(shape.window.w.kernel)};
}

std::string refuse_pool(const PoolShape& shape, int64_t n, const Values& values) {
  if (!tiles(shape)) return "takes windows that tile the images";
  std::string reason = refuse(values, shape.in.c);
  return reason.empty() ? refuse_large({n, shape.in.numel()}) : reason;
}

PixelRows in_rows(const PoolShape& shape) { return {shape.in.c, shape.in.pixels()}; }
PixelRows out_rows(const PoolShape& shape) { return {shape.in.c, shape.out().pixels()}; }

Cover covers_pool(const RemainingOps& rest) {
  const auto* op = rest.get<MaxPool>(0);
  if (op == nullptr) return no_such_op(MaxPool::kName);
  Cover cover = cover_unless(refuse_pool(op->shape, op->n(), {op->x, op->y}), 1);
  if (cover.ops == 0) return cover;
  use_channels_last(cover.reads, op->x, in_rows(op->shape));
  use_channels_last(cover.writes, op->y, out_rows(op->shape));
  return cover;
}

std::unique_ptr<Step> prepare_pool(const Span& span, const Binding& binding) {
  const auto& op = span.get<MaxPool>(0);
  return dispatch_device_half(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(binding, describe(span.op(0)),
                       [pool = tile_pool(op.shape, op.n()), x = binding.read(op.x).as<T>(),
                        y = binding.write(op.y).as<T>()](cudaStream_t stream) {
                         return launch_rows_pool<T>(pool, x, y, stream);
                       });
  });
}

Cover covers_pool_grad(const RemainingOps& rest) {
  const auto* op = rest.get<MaxPoolGrad>(0);
  if (op == nullptr) return no_such_op(MaxPoolGrad::kName);
  Cover cover = cover_unless(refuse_pool(op->shape, op->n(), {op->x, op->dy, op->dx}), 1);
  if (cover.ops == 0) return cover;
  use_channels_last(cover.reads, op->x, in_rows(op->shape));
  use_channels_last(cover.reads, op->y, out_rows(op->shape));
  use_channels_last(cover.reads, op->dy, out_rows(op->shape));
  use_channels_last(cover.writes, op->dx, in_rows(op->shape));
  return cover;
}

std::unique_ptr<Step> prepare_pool_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<MaxPoolGrad>(0);
  return dispatch_device_half(op.dx.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(
        binding, describe(span.op(0)),
        [pool = tile_pool(op.shape, op.n()), x = binding.read(op.x).as<T>(),
         dy = binding.read(op.dy).as<T>(), dx = binding.write(op.dx).as<T>()](cudaStream_t stream) {
          return launch_rows_pool_grad<T>(pool, x, dy, dx, stream);
        });
  });
}

// A cover of element-wise ops whose values are all images of one shape. The shape comes from
// neighbouring ops.
Cover cover_images(const RemainingOps& rest, size_t ops, const Values& reads,
                   const Values& writes) {
  Values all = writes;
  all.insert(all.end(), reads.begin(), reads.end());
  const auto rows = rows_of(rest.program, all);
  if (!rows) return Cover::no("no op says what images these are");
  if (rows->channels * rows->pixels != all[0].shape.numel() / all[0].shape[0]) {
    return Cover::no("the values are no images of the shape that an op gives them");
  }
  Cover cover = cover_unless(refuse(all, rows->channels), ops);
  if (cover.ops == 0) return cover;
  for (size_t i = 0; i < reads.size(); ++i) {
    const bool seen = std::any_of(reads.begin(), reads.begin() + ptrdiff_t(i),
                                  [&](const Value& value) { return value.id == reads[i].id; });
    if (!seen) use_channels_last(cover.reads, reads[i], *rows);
  }
  for (const Value& value : writes) use_channels_last(cover.writes, value, *rows);
  return cover;
}

Cover covers_add(const RemainingOps& rest, bool relu) {
  const auto* op = rest.get<Add>(0);
  if (op == nullptr) return no_such_op(Add::kName);
  if (op->xs.size() > size_t(kMostSummed)) return Cover::no("more inputs than a launch takes");
  if (!relu) return cover_images(rest, 1, op->xs, {op->y});
  const auto* next = rest.get<Activation>(1);
  if (next == nullptr || next->kind != ActivationKind::relu || next->x.id != op->y.id) {
    return Cover::no("no relu follows");
  }
  const bool kept = !rest.dead_after(op->y, 2);
  Cover cover = cover_images(rest, 2, op->xs, kept ? Values{op->y, next->y} : Values{next->y});
  if (cover.ops > 0 && !kept) cover.skips.push_back(op->y.id);
  return cover;
}

std::unique_ptr<Step> prepare_add(const Span& span, const Binding& binding, bool relu) {
  const auto& op = span.get<Add>(0);
  return dispatch_device_half(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    RunSumArgs<T> args{};
    for (size_t i = 0; i < op.xs.size(); ++i) args.xs[i] = binding.read(op.xs[i]).template as<T>();
    args.inputs = int(op.xs.size());
    args.scale = op.scale;
    args.y = binding.write(op.y).template as<T>();
    if (relu) args.active = binding.write(span.get<Activation>(1).y).template as<T>();
    args.count = op.y.shape.numel();
    return launch_step(binding, describe(span.op(0)),
                       [args](cudaStream_t stream) { return launch_run_sum<T>(args, stream); });
  });
}

Cover covers_relu(const RemainingOps& rest) {
  const auto* op = rest.get<Activation>(0);
  if (op == nullptr || op->kind != ActivationKind::relu) return Cover::no("the next op is no relu");
  return cover_images(rest, 1, {op->x}, {op->y});
}

std::unique_ptr<Step> prepare_relu(const Span& span, const Binding& binding) {
  const auto& op = span.get<Activation>(0);
  return dispatch_device_half(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(binding, describe(span.op(0)),
                       [x = binding.read(op.x).as<T>(), y = binding.write(op.y).as<T>(),
                        count = op.y.shape.numel()](cudaStream_t stream) {
                         return launch_run_relu<T>(x, y, count, stream);
                       });
  });
}

Cover covers_relu_grad(const RemainingOps& rest) {
  const auto* op = rest.get<ActivationGrad>(0);
  if (op == nullptr || op->kind != ActivationKind::relu) {
    return Cover::no("the next op is no gradient of relu");
  }
  return cover_images(rest, 1, {op->saved, op->dy}, {op->dx});
}

std::unique_ptr<Step> prepare_relu_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<ActivationGrad>(0);
  return dispatch_device_half(op.dx.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(
        binding, describe(span.op(0)),
        [y = binding.read(op.saved).as<T>(), dy = binding.read(op.dy).as<T>(),
         dx = binding.write(op.dx).as<T>(), count = op.dx.shape.numel()](cudaStream_t stream) {
          return launch_run_relu_grad<T>(y, dy, dx, count, stream);
        });
  });
}

bool converts(const Value& value, const Format& from, const Format& to) {
  if (from.empty() == to.empty() || size_of(value.dtype) != 2 || !is_float(value.dtype)) {
    return false;
  }
  const auto rows = parse_channels_last(from.empty() ? to : from);
  return rows && value.shape.numel() == value.shape[0] * rows->channels * rows->pixels;
}

std::unique_ptr<Step> prepare_transpose(const Span&, const Binding& binding) {
  const Value value = binding.converted();
  const bool to_last = binding.from().empty();
  const PixelRows rows = *parse_channels_last(to_last ? binding.to() : binding.from());
  const int channels = int(rows.channels), pixels = int(rows.pixels);
  return dispatch_device_half(value.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(binding, "transpose_image",
                       [down = to_last ? channels : pixels, right = to_last ? pixels : channels,
                        n = int(value.shape[0]), from = binding.read(value).as<T>(),
                        to = binding.write(value).as<T>()](cudaStream_t stream) {
                         return launch_transpose<T>(from, to, down, right, n, stream);
                       });
  });
}

}  // namespace

KernelTable channels_last_image_kernels() {
  KernelTable table{
      cuda_kernel("cuda.max_pool.channels_last", covers_pool, prepare_pool),
      cuda_kernel("cuda.max_pool_grad.channels_last", covers_pool_grad, prepare_pool_grad),
      cuda_kernel("cuda.add_relu.channels_last", covers_add, prepare_add, true),
      cuda_kernel("cuda.add.channels_last", covers_add, prepare_add, false),
      cuda_kernel("cuda.relu.channels_last", covers_relu, prepare_relu),
      cuda_kernel("cuda.relu_grad.channels_last", covers_relu_grad, prepare_relu_grad)};
  Kernel transpose = cuda_kernel("cuda.transpose_image.plain", {}, prepare_transpose);
  transpose.converts = converts;
  table.push_back(std::move(transpose));
  return computing_in(kHalves, concurrent(std::move(table)));
}

}  // namespace ridgeline::cuda
