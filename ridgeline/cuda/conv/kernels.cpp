#include "ridgeline/cuda/conv/kernels.h"

#include "ridgeline/cuda/conv/direct.h"
#include "ridgeline/cuda/conv/fused_conv2.h"
#include "ridgeline/cuda/conv/fused_lenet.h"
#include "ridgeline/cuda/conv/spans.h"
#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/bind_mixed_operand.h"
#include "ridgeline/cuda/plain/gather.h"

namespace ridgeline::cuda {
namespace {

// Adds the values inside the layer that no later op may read.
void add_inner(const PooledConv& layer, Values& inner) {
  inner.push_back(layer.conv->y);
  if (layer.activation != nullptr) inner.push_back(layer.activation->y);
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

Cover covers_direct(const RemainingOps& rest, bool gathers) {
  const auto found = find_convs(rest, gathers, 1);
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
  Values inner{conv.y};
  if (gathers) inner.push_back(found->front.bytes->y);
  reason = keep_activation(rest, found->first, found->ops(), inner);
  return reason.empty() ? cover_skipping(rest, inner, found->ops()) : Cover::no(reason);
}

std::unique_ptr<Step> prepare_direct(const Span& span, const Binding& binding, bool gathers) {
  const ConvSpan found = find_convs(span, binding.runtime(), gathers, 1);
  const Conv2d& conv = *found.first.conv;
  DirectArgs args;
  args.shape = direct_shape(conv.shape);
  args.source = source_of(found.front, conv, binding);
  args.w = binding.read(conv.w).as<float>();
  args.b = binding.read(conv.b).as<float>();
  args.y = binding.write(found.first.pool->y).as<float>();
  args.activation = found.first.activation_fn();
  if (found.first.activation != nullptr) {
    args.a = binding.write(found.first.activation->y).as<float>();  // null if it is skipped
  }
  return launch_step(binding, describe(Op{conv}),
                     [args, labels = labels_of(found.front, binding),
                      sms = cuda_runtime(binding.runtime()).sms()](cudaStream_t stream) {
                       const cudaError_t error = launch_conv_pool_direct(args, sms, stream);
                       if (error != cudaSuccess || labels.label == nullptr) return error;
                       return launch_gather<float>(labels, stream);
                     });
}

// ---- two layers, tensor cores ----

FusedConv2Shape fused_conv2_shape(const Conv2dShape& first, const Conv2dShape& second) {
  return {int(first.in.h),
          int(first.in.w),
          int(first.window.h.kernel),
          int(first.k),
          int(second.window.h.kernel),
          int(second.k)};
}

std::string refuse_fused_conv2(const ConvSpan& found) {
  std::string reason = refuse_layer(found.first);
  if (reason.empty()) reason = refuse_layer(found.second);
  if (!reason.empty()) return reason;
  const Conv2dShape &first = found.first.conv->shape, &second = found.second.conv->shape;
  if (first.in.c != 1) return "takes images of one channel";
  if (first.window.h.pad != 0 || second.window.h.pad != 0) return "takes no padding";
  if (!has_fused_conv2(fused_conv2_shape(first, second))) return "is not built for these extents";
  return {};
}

std::string refuse_fused_conv2_types(const RemainingOps& rest, const ConvSpan& found) {
  const Conv2d &first = *found.first.conv, &second = *found.second.conv;
  const DType dtype = first.x.dtype;
  if (dtype == DType::fp64) return "the tensor cores take no fp64 here";
  if (dtype == DType::fp32 && rest.program.precision != Precision::tf32) {
    return "rounds to tf32, which this run did not ask for";
  }
  if (shared_memory(rest.runtime) < fused_conv2_shared_memory(size_of(dtype))) {
    return "needs the shared memory of sm_90";
  }
  return refuse_floats({first.x, first.w, unless_mixed(first.b, dtype), second.w,
                        unless_mixed(second.b, dtype), found.second.pool->y});
}

Cover covers_fused_conv2(const RemainingOps& rest, bool gathers) {
  const auto found = find_convs(rest, gathers, 2);
  if (!found) return Cover::no("the next ops are no two convolutions with their pools");
  std::string reason = refuse_fused_conv2(*found);
  if (reason.empty()) reason = refuse_fused_conv2_types(rest, *found);
  if (!reason.empty()) return Cover::no(reason);
  Values inner;
  if (gathers) inner.push_back(found->front.bytes->y);
  add_inner(found->first, inner);
  inner.push_back(found->first.pool->y);
  add_inner(found->second, inner);
  return cover_skipping(rest, inner, found->ops());
}

// All arguments except y.
template <typename T>
FusedConv2Args<T> fused_conv2_args(const ConvSpan& found, const Binding& binding) {
  const Conv2d &first = *found.first.conv, &second = *found.second.conv;
  const DType dtype = first.x.dtype;
  FusedConv2Args<T> args{};
  args.source = source_of(found.front, first, binding);
  args.w1 = binding.read(first.w).as<T>();
  args.w2 = binding.read(second.w).as<T>();
  args.b1 = read_mixed<T>(binding, first.b, dtype);
  args.b2 = read_mixed<T>(binding, second.b, dtype);
  args.activation1 = found.first.activation_fn();
  args.activation2 = found.second.activation_fn();
  return args;
}

template <typename T>
std::unique_ptr<Step> prepare_fused_conv2(const ConvSpan& found, const Binding& binding,
                                          int variant) {
  const Conv2d &first = *found.first.conv, &second = *found.second.conv;
  FusedConv2Args<T> args = fused_conv2_args<T>(found, binding);
  args.y = binding.write(found.second.pool->y).as<T>();
  return launch_step(
      binding, describe(Op{second}),
      [args, variant, shape = fused_conv2_shape(first.shape, second.shape),
       labels = labels_of(found.front, binding),
       sms = cuda_runtime(binding.runtime()).sms()](cudaStream_t stream) {
        const cudaError_t error = launch_fused_conv2<T>(shape, args, variant, sms, stream);
        if (error != cudaSuccess || labels.label == nullptr) return error;
        return launch_gather<float>(labels, stream);
      },
      fused_conv2_variant<T>(variant));
}

std::unique_ptr<Step> prepare_fused_conv2(const Span& span, const Binding& binding, bool gathers,
                                          int variant) {
  const ConvSpan found = find_convs(span, binding.runtime(), gathers, 2);
  switch (found.first.conv->x.dtype) {
    case DType::bf16:
      return prepare_fused_conv2<__nv_bfloat16>(found, binding, variant);
    case DType::fp16:
      return prepare_fused_conv2<__half>(found, binding, variant);
    default:
      return prepare_fused_conv2<float>(found, binding, variant);
  }
}

// ---- a whole network ----

struct LenetSpan {
  ConvSpan convs;
  const Linear* first = nullptr;
  const Activation* activation = nullptr;  // of the first linear layer, or none
  const Linear* last = nullptr;
  const Softmax* softmax = nullptr;  // or none
  size_t ops = 0;

  const Value& y() const { return softmax != nullptr ? softmax->y : last->y; }
};

std::optional<LenetSpan> find_lenet(const RemainingOps& rest, bool gathers) {
  const auto convs = find_convs(rest, gathers, 2);
  if (!convs) return {};
  LenetSpan net{*convs};
  net.ops = convs->ops();
  ValueId x = convs->second.pool->y.id;
  net.first = rest.get<Linear>(net.ops++);
  if (net.first == nullptr || net.first->x.id != x) return {};
  x = net.first->y.id;
  if (const auto* activation = rest.get<Activation>(net.ops); activation && activation->x.id == x) {
    if (!has_activation_fn(activation->kind)) return {};
    net.activation = activation;
    x = activation->y.id, ++net.ops;
  }
  net.last = rest.get<Linear>(net.ops++);
  if (net.last == nullptr || net.last->x.id != x) return {};
  if (const auto* softmax = rest.get<Softmax>(net.ops);
      softmax && softmax->x.id == net.last->y.id && rest.dead_after(softmax->x, net.ops + 1)) {
    net.softmax = softmax, ++net.ops;
  }
  return net;
}

std::string refuse_fused_lenet(const RemainingOps& rest, const LenetSpan& net) {
  std::string reason = refuse_fused_conv2(net.convs);
  if (reason.empty()) reason = refuse_fused_conv2_types(rest, net.convs);
  if (!reason.empty()) return reason;
  const Conv2d &first = *net.convs.first.conv, &second = *net.convs.second.conv;
  const DType dtype = first.x.dtype;
  if (size_of(dtype) != 2) return "takes halves only";
  if (!has_fused_lenet(fused_conv2_shape(first.shape, second.shape)))
    return "is not built for these extents";
  if (net.first->out() > kFusedLenetMostHidden || net.last->out() > kFusedLenetMostClasses) {
    return fmt::format("takes up to {} hidden units and {} outputs", kFusedLenetMostHidden,
                       kFusedLenetMostClasses);
  }
  return refuse_floats({first.x, net.first->w, unless_mixed(net.first->b, dtype), net.last->w,
                        unless_mixed(net.last->b, dtype), unless_mixed(net.y(), dtype)});
}

Cover covers_fused_lenet(const RemainingOps& rest, bool gathers) {
  const auto net = find_lenet(rest, gathers);
  if (!net) return Cover::no("the next ops are no two convolutions and two linear layers");
  if (const std::string reason = refuse_fused_lenet(rest, *net); !reason.empty()) {
    return Cover::no(reason);
  }
  Values inner;
  if (gathers) inner.push_back(net->convs.front.bytes->y);
  for (const PooledConv& layer : {net->convs.first, net->convs.second}) {
    add_inner(layer, inner);
    inner.push_back(layer.pool->y);
  }
  inner.push_back(net->first->y);
  if (net->activation != nullptr) inner.push_back(net->activation->y);
  if (net->softmax != nullptr) inner.push_back(net->last->y);
  return cover_skipping(rest, inner, net->ops);
}

std::unique_ptr<Step> prepare_fused_lenet(const Span& span, const Binding& binding, bool gathers) {
  const LenetSpan net =
      *find_lenet(RemainingOps{span.program, span.begin, binding.runtime()}, gathers);
  const DType dtype = net.last->w.dtype;
  return dispatch_device_half(dtype, [&](auto type) {
    using T = decltype(type);
    FusedLenetArgs<T> args{};
    args.convs = fused_conv2_args<T>(net.convs, binding);
    args.w3 = binding.read(net.first->w).template as<T>();
    args.w4 = binding.read(net.last->w).template as<T>();
    args.b3 = read_mixed<T>(binding, net.first->b, dtype);
    args.b4 = read_mixed<T>(binding, net.last->b, dtype);
    args.activation3 =
        net.activation != nullptr ? activation_of(net.activation->kind) : ActivationFn::none;
    args.hidden = int(net.first->out()), args.classes = int(net.last->out());
    args.softmax = net.softmax != nullptr;
    args.y = write_mixed<T>(binding, net.y(), dtype);
    return launch_step(binding, describe(Op{*net.last}),
                       [args, labels = labels_of(net.convs.front, binding),
                        sms = cuda_runtime(binding.runtime()).sms()](cudaStream_t stream) {
                         const cudaError_t error = launch_fused_lenet<T>(args, sms, stream);
                         if (error != cudaSuccess || labels.label == nullptr) return error;
                         return launch_gather<float>(labels, stream);
                       });
  });
}

}  // namespace

KernelTable conv_kernels() {
  KernelTable table;
  for (const bool gathers : {true, false}) {
    const char* prefix = gathers ? "gather_" : "";
    table.push_back(cuda_kernel(fmt::format("cuda.{}conv_net.fused_lenet", prefix),
                                covers_fused_lenet, prepare_fused_lenet, gathers,
                                {.precisions = kHalves, .least_arch = 90}));
    for (int variant = 0; variant < kFusedConv2Variants; ++variant) {
      table.push_back(cuda_kernel(
          fmt::format("cuda.{}conv2d_pool_x2.fused_conv2.{}", prefix, variant),
          [gathers](const RemainingOps& rest) { return covers_fused_conv2(rest, gathers); },
          [gathers, variant](const Span& span, const Binding& binding) {
            return prepare_fused_conv2(span, binding, gathers, variant);
          },
          kMma));
    }
    table.push_back(cuda_kernel(fmt::format("cuda.{}conv2d_pool.direct", prefix), covers_direct,
                                prepare_direct, gathers, {.precisions = kStoredInFp32}));
  }
  return concurrent(std::move(table));
}

}  // namespace ridgeline::cuda
