#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/bind_activation.h"
#include "ridgeline/cuda/plain/elementwise.h"
#include "ridgeline/cuda/plain/gather.h"
#include "ridgeline/cuda/plain/kernels.h"

namespace ridgeline::cuda {
namespace {

// Whether the op gathers bytes, to a float type or as codes.
bool gathers_bytes(const Gather& op) {
  return op.set.dtype == DType::uint8 && (is_float(op.y.dtype) || op.y.dtype == DType::int32);
}
bool gathers_floats(const Gather& op) {
  return op.set.dtype == DType::fp32 && is_float(op.y.dtype);
}
bool gathers_labels(const Gather& op) {
  return op.set.dtype == DType::int32 && op.y.dtype == DType::int32;
}

int64_t sample_size(const Value& value) {
  return value.shape[0] > 0 ? value.shape.numel() / value.shape[0] : 0;
}

Cover covers_gather(const RemainingOps& rest) {
  const auto* op = rest.get<Gather>(0);
  if (op == nullptr) return no_such_op(Gather::kName);
  if (!gathers_bytes(*op) && !gathers_floats(*op) && !gathers_labels(*op)) {
    return Cover::no(
        "gathers uint8 to a float type or int32, fp32 to a float type, int32 to int32");
  }
  return Cover::of(1);
}

// A batch and its labels: gathers of the same samples from two sets.
Cover covers_gather_pair(const RemainingOps& rest) {
  const auto *x = rest.get<Gather>(0), *label = rest.get<Gather>(1);
  if (x == nullptr || label == nullptr) return Cover::no("the next ops are no two gathers");
  if (!gathers_bytes(*x) || !gathers_labels(*label)) {
    return Cover::no("the next ops do not gather bytes and then labels");
  }
  if (x->order.id != label->order.id || x->first.id != label->first.id ||
      x->tick.id != label->tick.id || x->y.shape[0] != label->y.shape[0]) {
    return Cover::no("the two gathers pick different samples");
  }
  return Cover::of(2);
}

void add_gather(GatherArgs& args, const Gather& op, const Binding& binding) {
  args.order = binding.read(op.order).as<int32_t>();
  args.first = binding.read(op.first).as<int64_t>();
  args.tick = binding.read(op.tick).as<int32_t>();
  args.n = op.y.shape[0];
  if (gathers_labels(op)) {
    args.labels = binding.read(op.set).as<int32_t>();
    args.label = binding.write(op.y).as<int32_t>();
    args.label_size = sample_size(op.y);
  } else {
    if (gathers_floats(op)) {
      args.floats = binding.read(op.set).as<float>();
    } else {
      args.set = binding.read(op.set).as<uint8_t>();
    }
    args.y = binding.write(op.y).data;
    args.sample_size = sample_size(op.y);
    args.scale = is_float(op.y.dtype) ? op.scale : 1;
    args.shift = is_float(op.y.dtype) ? op.shift : 0;
  }
}

// Calls f with the kernel's type for a batch: a float type, or int32 for codes.
template <typename F>
std::unique_ptr<Step> dispatch_batch(DType dtype, F&& f) {
  return dtype == DType::int32 ? f(int32_t{}) : dispatch_device_float(dtype, f);
}

std::unique_ptr<Step> prepare_gather(const Span& span, const Binding& binding) {
  GatherArgs args;
  for (size_t i = 0; i < span.size(); ++i) add_gather(args, span.get<Gather>(i), binding);
  return dispatch_batch(span.get<Gather>(0).y.dtype, [&](auto type) {
    return launch_step(binding, describe(span.op(0)), [args](cudaStream_t stream) {
      return launch_gather<decltype(type)>(args, stream);
    });
  });
}

Cover covers_augment(const RemainingOps& rest) {
  const auto* op = rest.get<GatherAugment>(0);
  if (op == nullptr) return no_such_op(GatherAugment::kName);
  if (op->set.dtype != DType::uint8 || (!is_float(op->y.dtype) && op->y.dtype != DType::int32)) {
    return Cover::no("gathers uint8 to a float type or int32");
  }
  return cover_unless(refuse_large({op->in.numel(), op->y.shape[0]}), 1);
}

std::unique_ptr<Step> prepare_augment(const Span& span, const Binding& binding) {
  const auto& op = span.get<GatherAugment>(0);
  AugmentArgs args;
  args.gather.set = binding.read(op.set).as<uint8_t>();
  args.gather.y = binding.write(op.y).data;
  args.gather.order = binding.read(op.order).as<int32_t>();
  args.gather.first = binding.read(op.first).as<int64_t>();
  args.gather.tick = binding.read(op.tick).as<int32_t>();
  args.gather.n = op.y.shape[0];
  args.gather.sample_size = op.in.numel();
  args.gather.scale = op.scale;
  args.gather.shift = op.shift;
  args.epoch = binding.read(op.epoch).as<int64_t>();
  args.seed = op.how.seed;
  args.h = int(op.in.h);
  args.w = int(op.in.w);
  args.move = int(op.how.shift);
  args.flip = op.how.flip;
  return dispatch_batch(op.y.dtype, [&](auto type) {
    return launch_step(binding, describe(span.op(0)), [args](cudaStream_t stream) {
      return launch_gather_augment<decltype(type)>(args, stream);
    });
  });
}

Cover covers_activation(const RemainingOps& rest) {
  const auto* op = rest.get<Activation>(0);
  if (op == nullptr) return no_such_op(Activation::kName);
  return cover_unless(refuse_floats({op->x, op->y}), 1);
}

std::unique_ptr<Step> prepare_activation(const Span& span, const Binding& binding) {
  const auto& op = span.get<Activation>(0);
  return dispatch_device_float(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(
        binding, describe(span.op(0)),
        [activation = activation_args(op), x = binding.read(op.x).as<T>(),
         y = binding.write(op.y).as<T>(), count = op.y.shape.numel()](cudaStream_t stream) {
          return launch_activation<T>(activation, x, y, count, stream);
        });
  });
}

Cover covers_activation_grad(const RemainingOps& rest) {
  const auto* op = rest.get<ActivationGrad>(0);
  if (op == nullptr) return no_such_op(ActivationGrad::kName);
  return cover_unless(refuse_floats({op->saved, op->dy, op->dx}), 1);
}

std::unique_ptr<Step> prepare_activation_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<ActivationGrad>(0);
  return dispatch_device_float(op.dx.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(binding, describe(span.op(0)),
                       [activation = activation_args(op), saved = binding.read(op.saved).as<T>(),
                        dy = binding.read(op.dy).as<T>(), dx = binding.write(op.dx).as<T>(),
                        count = op.dx.shape.numel()](cudaStream_t stream) {
                         return launch_activation_grad<T>(activation, saved, dy, dx, count, stream);
                       });
  });
}

constexpr UnaryFn unary_fn(UnaryKind kind) { return UnaryFn(int(kind)); }
static_assert(unary_fn(UnaryKind::exp) == UnaryFn::exp);
static_assert(unary_fn(UnaryKind::sin) == UnaryFn::sin);
static_assert(unary_fn(UnaryKind::step) == UnaryFn::step);

Cover covers_unary(const RemainingOps& rest) {
  const auto* op = rest.get<Unary>(0);
  if (op == nullptr) return no_such_op(Unary::kName);
  return cover_unless(refuse_floats({op->x, op->y}), 1);
}

std::unique_ptr<Step> prepare_unary(const Span& span, const Binding& binding) {
  const auto& op = span.get<Unary>(0);
  return dispatch_device_float(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(
        binding, describe(span.op(0)),
        [fn = unary_fn(op.kind), x = binding.read(op.x).as<T>(), y = binding.write(op.y).as<T>(),
         count = op.y.shape.numel()](cudaStream_t stream) {
          return launch_unary<T>(fn, x, y, count, stream);
        });
  });
}

Cover covers_unary_grad(const RemainingOps& rest) {
  const auto* op = rest.get<UnaryGrad>(0);
  if (op == nullptr) return no_such_op(UnaryGrad::kName);
  return cover_unless(refuse_floats({op->x, op->dy, op->dx}), 1);
}

std::unique_ptr<Step> prepare_unary_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<UnaryGrad>(0);
  return dispatch_device_float(op.dx.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(
        binding, describe(span.op(0)),
        [fn = unary_fn(op.kind), x = binding.read(op.x).as<T>(), dy = binding.read(op.dy).as<T>(),
         dx = binding.write(op.dx).as<T>(), count = op.dx.shape.numel()](cudaStream_t stream) {
          return launch_unary_grad<T>(fn, x, dy, dx, count, stream);
        });
  });
}

Cover covers_dropout(const RemainingOps& rest) {
  const auto* op = rest.get<Dropout>(0);
  if (op == nullptr) return no_such_op(Dropout::kName);
  return cover_unless(refuse_floats({op->x, op->y}), 1);
}

std::unique_ptr<Step> prepare_dropout(const Span& span, const Binding& binding) {
  const auto& op = span.get<Dropout>(0);
  DropoutArgs args;
  args.p = op.mask.p;
  args.seed = op.mask.seed;
  args.stream_base = DropoutMask::stream(op.mask.layer, 0);
  args.first = uint64_t(op.mask.sample_offset * sample_size(op.x));
  args.step = binding.read(op.step).as<int64_t>();
  args.tick = binding.read(op.tick).as<int32_t>();
  return dispatch_device_float(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(binding, describe(span.op(0)),
                       [args, x = binding.read(op.x).as<T>(), y = binding.write(op.y).as<T>(),
                        count = op.y.shape.numel()](cudaStream_t stream) {
                         return launch_dropout<T>(args, x, y, count, stream);
                       });
  });
}

}  // namespace

KernelTable plain_batch_kernels() {
  return concurrent(
      {cuda_kernel("cuda.gather_pair.plain", covers_gather_pair, prepare_gather),
       cuda_kernel("cuda.gather.plain", covers_gather, prepare_gather),
       cuda_kernel("cuda.gather_augment.plain", covers_augment, prepare_augment),
       cuda_kernel("cuda.activation.plain", covers_activation, prepare_activation),
       cuda_kernel("cuda.activation_grad.plain", covers_activation_grad, prepare_activation_grad),
       cuda_kernel("cuda.unary.plain", covers_unary, prepare_unary),
       cuda_kernel("cuda.unary_grad.plain", covers_unary_grad, prepare_unary_grad),
       cuda_kernel("cuda.dropout.plain", covers_dropout, prepare_dropout)});
}

}  // namespace ridgeline::cuda
