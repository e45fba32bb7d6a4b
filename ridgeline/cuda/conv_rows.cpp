#include "ridgeline/cuda/conv_rows.h"

#include <optional>

#include "ridgeline/cuda/conv/constant.h"
#include "ridgeline/cuda/conv/direct.h"
#include "ridgeline/cuda/conv/twice.h"
#include "ridgeline/cuda/plain/gather.h"
#include "ridgeline/cuda/plain/geometry.h"
#include "ridgeline/cuda/plain/loose_bind.h"
#include "ridgeline/cuda/row.h"

namespace ridgeline::cuda {
namespace {

// Convolution, activation (or none) and a pool of 2 x 2, each reading the one before.
struct PooledConv {
  const Conv2d* conv = nullptr;
  const Activation* activation = nullptr;
  const MaxPool* pool = nullptr;

  size_t ops() const { return activation != nullptr ? 3 : 2; }
  Curve curve() const { return activation != nullptr ? curve_of(activation->kind) : Curve::none; }
};

bool halves(const Slide& slide) { return slide == Slide{2, 2, 0, 1}; }

std::optional<PooledConv> pooled_conv(const Rest& rest, size_t at) {
  PooledConv found;
  found.conv = rest.get<Conv2d>(at);
  if (found.conv == nullptr) return {};
  found.activation = rest.get<Activation>(at + 1);
  const size_t next = found.activation != nullptr ? at + 2 : at + 1;
  found.pool = rest.get<MaxPool>(next);
  if (found.pool == nullptr) return {};
  const Value& pooled = found.activation != nullptr ? found.activation->y : found.conv->y;
  if (found.activation != nullptr && found.activation->x.id != found.conv->y.id) return {};
  if (found.pool->x.id != pooled.id) return {};
  return found;
}

// The maximum may be taken before the activation only if that does not decrease.
std::string refuse_layer(const PooledConv& layer) {
  const Conv2dShape& shape = layer.conv->shape;
  const Slide &down = shape.window.h, &right = shape.window.w;
  if (shape.groups != 1) return "takes one group";
  if (down != right) return "takes square filters with equal padding";
  if (down.stride != 1 || down.dilation != 1) return "takes stride 1 without dilation";
  if (layer.curve() == Curve::gelu) return "gelu decreases in part";
  if (!halves(layer.pool->shape.window.h) || !halves(layer.pool->shape.window.w)) {
    return "takes pools of 2 x 2 with stride 2";
  }
  return {};
}

// The values of the layer that must not be wanted later.
void add_inner(const PooledConv& layer, Values& inner) {
  inner.push_back(layer.conv->y);
  if (layer.activation != nullptr) inner.push_back(layer.activation->y);
}

// A gather of bytes in front of the layers, and perhaps one of labels behind it.
struct Front {
  const Gather* bytes = nullptr;
  const Gather* labels = nullptr;

  size_t ops() const { return size_t(bytes != nullptr) + size_t(labels != nullptr); }
};

std::optional<Front> front(const Rest& rest) {
  Front found;
  found.bytes = rest.get<Gather>(0);
  if (found.bytes == nullptr || found.bytes->set.dtype != DType::uint8) return {};
  found.labels = rest.get<Gather>(1);
  if (found.labels != nullptr && found.labels->y.dtype != DType::int32) return {};
  return found;
}

// Skips `inner`, or says which is wanted later.
Cover cover_skipping(const Rest& rest, const Values& inner, size_t ops) {
  Cover cover = Cover::of(ops);
  for (const Value& value : inner) {
    if (!rest.dead_after(value, ops)) return Cover::no("a value between the ops is needed later");
    cover.skips.push_back(value.id);
  }
  return cover;
}

// The images the first layer reads.
ImageSource source_of(const Front& front, const Conv2d& conv, const Binding& binding) {
  ImageSource source;
  source.n = conv.n();
  if (front.bytes == nullptr) {
    source.x = binding.read(conv.x).data;
    return source;
  }
  const Gather& gather = *front.bytes;
  source.set = binding.read(gather.set).as<uint8_t>();
  source.order = binding.read(gather.order).as<int32_t>();
  source.first = binding.read(gather.first).as<int64_t>();
  source.tick = binding.read(gather.tick).as<int32_t>();
  source.scale = float(gather.scale);
  source.shift = float(gather.shift);
  return source;
}

// What gathers the labels, or nothing.
GatherArgs labels_of(const Front& front, const Binding& binding) {
  GatherArgs args;
  if (front.labels == nullptr) return args;
  const Gather& gather = *front.labels;
  args.labels = binding.read(gather.set).as<int32_t>();
  args.label = binding.write(gather.y).as<int32_t>();
  args.label_row = gather.y.shape.numel() / std::max<int64_t>(1, gather.y.shape[0]);
  args.order = binding.read(gather.order).as<int32_t>();
  args.first = binding.read(gather.first).as<int64_t>();
  args.tick = binding.read(gather.tick).as<int32_t>();
  args.n = gather.y.shape[0];
  return args;
}

// The start of a span, as covers() found it.
struct Found {
  Front front;
  PooledConv first, second;  // second: absent in rows of one layer
};

// `gathers`: with a gather in front; `layers`: one or two.
std::optional<Found> find(const Rest& rest, bool gathers, int layers) {
  Found found;
  if (gathers) {
    const auto before = front(rest);
    if (!before) return {};
    found.front = *before;
  }
  const auto first = pooled_conv(rest, found.front.ops());
  if (!first || (gathers && first->conv->x.id != found.front.bytes->y.id)) return {};
  found.first = *first;
  if (layers == 1) return found;
  const auto second = pooled_conv(rest, found.front.ops() + first->ops());
  if (!second || second->conv->x.id != first->pool->y.id) return {};
  found.second = *second;
  return found;
}

Found find(const Span& span, const Runtime& runtime, bool gathers, int layers) {
  return *find(Rest{span.program, span.begin, runtime}, gathers, layers);
}

// ---- one layer, fp32 ----

DirectShape direct_shape(const Conv2dShape& shape) {
  return {int(shape.in.c),
          int(shape.in.h),
          int(shape.in.w),
          int(shape.k),
          int(shape.window.h.kernel),
          int(shape.window.h.pad)};
}

Cover covers_direct(const Rest& rest, bool gathers) {
  const auto found = find(rest, gathers, 1);
  if (!found) return Cover::no("the next ops are no convolution and its pool");
  const Conv2d& conv = *found->first.conv;
  std::string reason = refuse_floats({conv.x, conv.w, conv.b, found->first.pool->y});
  if (conv.x.dtype != DType::fp32) reason = "takes fp32 only";
  if (reason.empty()) reason = refuse_layer(found->first);
  if (reason.empty()) reason = refuse_large({conv.n(), conv.shape.in.numel(), conv.shape.k});
  if (reason.empty()) {
    reason = refuse_direct(direct_shape(conv.shape), gathers, shared_memory(rest.runtime));
  }
  if (!reason.empty()) return Cover::no(reason);
  const size_t ops = found->front.ops() + found->first.ops();
  Values inner{conv.y};
  if (gathers) inner.push_back(found->front.bytes->y);
  const Activation* activation = found->first.activation;
  if (activation != nullptr && rest.dead_after(activation->y, ops)) inner.push_back(activation->y);
  // Windows cover all that the pool reads only of even extents.
  if (activation != nullptr && inner.back().id != activation->y.id &&
      (conv.shape.out().h % 2 != 0 || conv.shape.out().w % 2 != 0)) {
    return Cover::no("the pool leaves out a row or column that is needed later");
  }
  return cover_skipping(rest, inner, ops);
}

std::unique_ptr<Step> prepare_direct(const Span& span, const Binding& binding, bool gathers) {
  const Found found = find(span, binding.runtime(), gathers, 1);
  const Conv2d& conv = *found.first.conv;
  DirectArgs args;
  args.shape = direct_shape(conv.shape);
  args.source = source_of(found.front, conv, binding);
  args.w = binding.read(conv.w).as<float>();
  args.b = binding.read(conv.b).as<float>();
  args.y = binding.write(found.first.pool->y).as<float>();
  args.curve = found.first.curve();
  if (found.first.activation != nullptr) {
    args.a = binding.write(found.first.activation->y).as<float>();  // null where it is skipped
  }
  return launch_step(
      binding, describe(Op{conv}),
      [args, labels = labels_of(found.front, binding),
       processors = cuda_runtime(binding.runtime()).processors()](cudaStream_t stream) {
        const cudaError_t error = launch_conv_pool_direct(args, processors, stream);
        if (error != cudaSuccess || labels.label == nullptr) return error;
        return launch_gather<float>(labels, stream);
      });
}

// ---- two layers, tensor cores ----

TwiceShape twice_shape(const Conv2dShape& first, const Conv2dShape& second) {
  return {int(first.in.h),
          int(first.in.w),
          int(first.window.h.kernel),
          int(first.k),
          int(second.window.h.kernel),
          int(second.k)};
}

std::string refuse_twice(const Found& found) {
  std::string reason = refuse_layer(found.first);
  if (reason.empty()) reason = refuse_layer(found.second);
  if (!reason.empty()) return reason;
  const Conv2dShape &first = found.first.conv->shape, &second = found.second.conv->shape;
  if (first.in.c != 1) return "takes images of one channel";
  if (first.window.h.pad != 0 || second.window.h.pad != 0) return "takes no padding";
  if (!has_twice(twice_shape(first, second))) return "is not built for these extents";
  return {};
}

std::string refuse_twice_types(const Rest& rest, const Found& found) {
  const Conv2d &first = *found.first.conv, &second = *found.second.conv;
  const DType dtype = first.x.dtype;
  if (dtype == DType::fp64) return "the tensor cores take no fp64 here";
  if (dtype == DType::fp32 && rest.program.precision != Precision::tf32) {
    return "rounds to tf32, which this run did not ask for";
  }
  if (cuda_runtime(rest.runtime).architecture() < 80) return "needs sm_80 or later";
  if (shared_memory(rest.runtime) < twice_shared_memory(size_of(dtype))) {
    return "needs the shared memory of sm_90";
  }
  return refuse_floats({first.x, first.w, unless_loose(first.b, dtype), second.w,
                        unless_loose(second.b, dtype), found.second.pool->y});
}

Cover covers_twice(const Rest& rest, bool gathers) {
  const auto found = find(rest, gathers, 2);
  if (!found) return Cover::no("the next ops are no two convolutions with their pools");
  std::string reason = refuse_twice(*found);
  if (reason.empty()) reason = refuse_twice_types(rest, *found);
  if (!reason.empty()) return Cover::no(reason);
  Values inner;
  if (gathers) inner.push_back(found->front.bytes->y);
  add_inner(found->first, inner);
  inner.push_back(found->first.pool->y);
  add_inner(found->second, inner);
  return cover_skipping(rest, inner, found->front.ops() + found->first.ops() + found->second.ops());
}

template <typename T>
std::unique_ptr<Step> prepare_twice(const Found& found, const Binding& binding, int variant) {
  const Conv2d &first = *found.first.conv, &second = *found.second.conv;
  const DType dtype = first.x.dtype;
  TwiceArgs<T> args;
  args.source = source_of(found.front, first, binding);
  args.w1 = binding.read(first.w).as<T>();
  args.w2 = binding.read(second.w).as<T>();
  args.b1 = loose_read<T>(binding, first.b, dtype);
  args.b2 = loose_read<T>(binding, second.b, dtype);
  args.y = binding.write(found.second.pool->y).as<T>();
  args.curve1 = found.first.curve();
  args.curve2 = found.second.curve();
  return launch_step(
      binding, describe(Op{second}),
      [args, variant, shape = twice_shape(first.shape, second.shape),
       labels = labels_of(found.front, binding),
       processors = cuda_runtime(binding.runtime()).processors()](cudaStream_t stream) {
        const cudaError_t error =
            launch_conv_pool_twice<T>(shape, args, variant, processors, stream);
        if (error != cudaSuccess || labels.label == nullptr) return error;
        return launch_gather<float>(labels, stream);
      });
}

std::unique_ptr<Step> prepare_twice(const Span& span, const Binding& binding, bool gathers,
                                    int variant) {
  const Found found = find(span, binding.runtime(), gathers, 2);
  switch (found.first.conv->x.dtype) {
    case DType::bf16:
      return prepare_twice<__nv_bfloat16>(found, binding, variant);
    case DType::fp16:
      return prepare_twice<__half>(found, binding, variant);
    default:
      return prepare_twice<float>(found, binding, variant);
  }
}

// ---- one convolution ----

Cover covers_constant(const Rest& rest) {
  const auto* op = rest.get<Conv2d>(0);
  if (op == nullptr) return no_such_op(Conv2d::kName);
  std::string reason = refuse_floats({op->x, op->w, op->b, op->y});
  if (op->x.dtype != DType::fp32) reason = "takes fp32 only";
  if (op->shape.groups != 1) reason = "takes one group";
  if (op->w.shape.numel() > kMostConstantWeights) reason = "64 KB do not hold the filters";
  if (reason.empty()) reason = refuse_large({op->n(), op->shape.in.numel(), op->y.shape.numel()});
  return cover_unless(reason, 1);
}

std::unique_ptr<Step> prepare_constant(const Span& span, const Binding& binding) {
  const auto& op = span.get<Conv2d>(0);
  return launch_step(binding, describe(span.op(0)),
                     [g = geometry_of(op.shape, op.n()), x = binding.read(op.x).as<float>(),
                      w = binding.read(op.w).as<float>(), b = binding.read(op.b).as<float>(),
                      y = binding.write(op.y).as<float>()](cudaStream_t stream) {
                       return launch_conv2d_constant(g, x, w, b, y, stream);
                     });
}

}  // namespace

size_t shared_memory(const Runtime& runtime) {
  int bytes = 0;
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                               runtime.device().index),
        "the size of shared memory");
  return size_t(bytes);
}

Table conv_rows() {
  Table table;
  for (const bool gathers : {true, false}) {
    const char* prefix = gathers ? "gather_" : "";
    for (int variant = 0; variant < kTwiceVariants; ++variant) {
      table.push_back(cuda_row(
          fmt::format("cuda.{}conv2d_pool_twice.tensor.{}", prefix, variant),
          [gathers](const Rest& rest) { return covers_twice(rest, gathers); },
          [gathers, variant](const Span& span, const Binding& binding) {
            return prepare_twice(span, binding, gathers, variant);
          }));
    }
    table.push_back(cuda_row(
        fmt::format("cuda.{}conv2d_pool.direct", prefix),
        [gathers](const Rest& rest) { return covers_direct(rest, gathers); },
        [gathers](const Span& span, const Binding& binding) {
          return prepare_direct(span, binding, gathers);
        }));
  }
  table.push_back(cuda_row("cuda.conv2d.constant", covers_constant, prepare_constant));
  return table;
}

}  // namespace ridgeline::cuda
