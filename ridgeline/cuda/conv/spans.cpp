#include "ridgeline/cuda/conv/spans.h"

#include <algorithm>

#include "ridgeline/cuda/conv/kernels.h"

namespace ridgeline::cuda {
namespace {

std::optional<PooledConv> pooled_conv(const RemainingOps& rest, size_t at) {
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

std::optional<Front> front(const RemainingOps& rest) {
  Front found;
  found.bytes = rest.get<Gather>(0);
  if (found.bytes == nullptr || found.bytes->set.dtype != DType::uint8) return {};
  found.labels = rest.get<Gather>(1);
  const Gather *x = found.bytes, *label = found.labels;
  if (label != nullptr && (label->set.dtype != DType::int32 || label->y.dtype != DType::int32 ||
                           label->order.id != x->order.id || label->first.id != x->first.id ||
                           label->tick.id != x->tick.id || label->y.shape[0] != x->y.shape[0])) {
    return {};
  }
  return found;
}

}  // namespace

std::string refuse_square(const Conv2dShape& shape) {
  const Slide &down = shape.window.h, &right = shape.window.w;
  if (down != right) return "takes square filters with equal padding";
  return down.dilation != 1 ? "takes no dilation" : "";
}

std::string refuse_window(const Conv2dShape& shape) {
  if (shape.groups != 1) return "takes one group";
  if (shape.window.h.stride != 1) return "takes stride 1";
  return refuse_square(shape);
}

// The maximum may be taken before the activation only if the activation is non-decreasing.
std::string refuse_layer(const PooledConv& layer) {
  const Conv2dShape& shape = layer.conv->shape;
  if (std::string reason = refuse_window(shape); !reason.empty()) return reason;
  if (layer.activation != nullptr && !saves_output(layer.activation->kind)) {
    return "takes relu, tanh and sigmoid, which increase and know their slope from their output";
  }
  if (!quads(layer.pool->shape)) return "takes pools of 2 x 2 with stride 2";
  return {};
}

Cover cover_skipping(const RemainingOps& rest, const Values& inner, size_t ops) {
  Cover cover = Cover::of(ops);
  for (const Value& value : inner) {
    if (!rest.dead_after(value, ops)) return Cover::no("a value between the ops is needed later");
    cover.skips.push_back(value.id);
  }
  return cover;
}

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

GatherArgs labels_of(const Front& front, const Binding& binding) {
  GatherArgs args;
  if (front.labels == nullptr) return args;
  const Gather& gather = *front.labels;
  args.labels = binding.read(gather.set).as<int32_t>();
  args.label = binding.write(gather.y).as<int32_t>();
  args.label_size = gather.y.shape.numel() / std::max<int64_t>(1, gather.y.shape[0]);
  args.order = binding.read(gather.order).as<int32_t>();
  args.first = binding.read(gather.first).as<int64_t>();
  args.tick = binding.read(gather.tick).as<int32_t>();
  args.n = gather.y.shape[0];
  return args;
}

std::optional<ConvSpan> find_convs(const RemainingOps& rest, bool gathers, int layers) {
  ConvSpan found;
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

ConvSpan find_convs(const Span& span, const Runtime& runtime, bool gathers, int layers) {
  return *find_convs(RemainingOps{span.program, span.begin, runtime}, gathers, layers);
}

std::string keep_activation(const RemainingOps& rest, const PooledConv& layer, size_t ops,
                            Values& inner) {
  if (layer.activation == nullptr) return {};
  if (rest.dead_after(layer.activation->y, ops)) {
    inner.push_back(layer.activation->y);
    return {};
  }
  // The windows cover all of the pool's input only if its extents are even.
  const Image out = layer.conv->shape.out();
  if (out.h % 2 == 0 && out.w % 2 == 0) return {};
  return "the pool leaves out a row or column that is needed later";
}

std::string refuse_tensor(const RemainingOps& rest, const Conv2dShape& shape, int64_t n,
                          const Values& values, std::string (*refuse)(const Conv2dShape&)) {
  const DType dtype = values[0].dtype;
  if (dtype == DType::fp64) return "the tensor cores take no fp64 here";
  if (dtype == DType::fp32 && rest.program.precision != Precision::tf32) {
    return "rounds to tf32, which this run did not ask for";
  }
  std::string reason = refuse(shape);
  if (reason.empty()) reason = refuse_floats(values);
  if (reason.empty()) {
    reason = refuse_large({n, shape.in.numel(), shape.out().numel(), shape.weight().numel()});
  }
  return reason;
}

std::string refuse_pooled(const RemainingOps& rest, const PooledConv& layer) {
  const Conv2d& conv = *layer.conv;
  const DType dtype = conv.x.dtype;
  std::string reason = refuse_tensor(rest, conv.shape, conv.n(),
                                     {conv.x, conv.w, unless_mixed(conv.b, dtype), layer.pool->y});
  return reason.empty() ? refuse_layer(layer) : reason;
}

ImplicitShape implicit_shape(const Conv2dShape& shape, int64_t n) {
  return {int(n),
          int(shape.in.c),
          int(shape.in.h),
          int(shape.in.w),
          int(shape.k),
          int(shape.window.h.kernel),
          int(shape.window.h.pad),
          int(shape.window.h.stride),
          int(shape.groups)};
}

namespace {

template <typename Op>
std::optional<ConvProduct> find_product(const RemainingOps& rest) {
  const auto* op = rest.get<Op>(0);
  return op != nullptr ? std::optional<ConvProduct>(*op) : std::nullopt;
}
template <>
std::optional<ConvProduct> find_product<PooledConv>(const RemainingOps& rest) {
  const auto found = find_convs(rest, false, 1);
  return found ? std::optional<ConvProduct>(found->first) : std::nullopt;
}

Cover cover_product(const RemainingOps& rest, const std::optional<ConvProduct>& found,
                    const ConvKernels& kernels) {
  if (!found) return Cover::no("the next ops are no such convolution");
  const PooledConv& layer = found->layer;
  std::string reason = kernels.refuse(rest, *found);
  Values inner;
  const size_t ops = found->pooled() ? layer.ops() : 1;
  if (found->pooled()) {
    inner.push_back(layer.conv->y);
    if (reason.empty()) reason = refuse_layer(layer);
    if (reason.empty()) reason = keep_activation(rest, layer, ops, inner);
  }
  if (!reason.empty()) return Cover::no(reason);
  Cover cover = cover_skipping(rest, inner, ops);
  cover.workspace = kernels.workspace(rest.runtime, *found);
  return cover;
}

template <typename Op>
Kernel product_kernel(const std::string& name, const ConvKernels& kernels) {
  return cuda_kernel(
      name,
      [kernels](const RemainingOps& rest) {
        return cover_product(rest, find_product<Op>(rest), kernels);
      },
      [kernels](const Span& span, const Binding& binding) {
        const RemainingOps rest{span.program, span.begin, binding.runtime()};
        return kernels.prepare(binding, describe(span.op(0)), *find_product<Op>(rest));
      });
}

}  // namespace

KernelTable product_kernels(const std::string& how, const ConvKernels& kernels) {
  return {product_kernel<PooledConv>("cuda.conv2d_pool." + how, kernels),
          product_kernel<Conv2d>("cuda.conv2d." + how, kernels),
          product_kernel<Conv2dGradX>("cuda.conv2d_grad_x." + how, kernels)};
}

size_t shared_memory(const Runtime& runtime) {
  int bytes = 0;
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                               runtime.device().index),
        "the size of shared memory");
  return size_t(bytes);
}

}  // namespace ridgeline::cuda
