#include "ridgeline/cpu/simd/direct_conv_grad.h"
#include "ridgeline/cpu/simd/row.h"

namespace ridgeline::cpu::simd {
namespace {

// A convolution and what follows it in a row.
struct DirectSpan {
  const Conv2d* conv = nullptr;
  const Activation* activation = nullptr;
  const MaxPool* pool = nullptr;

  size_t ops() const { return 1 + size_t(activation != nullptr) + size_t(pool != nullptr); }
  const Value& y() const {
    return pool != nullptr ? pool->y : activation != nullptr ? activation->y : conv->y;
  }
};

// `pooled`: with a pool of 2 x 2, else without; each with the activation that stands between.
DirectSpan find(const Rest& rest, bool pooled) {
  DirectSpan found;
  found.conv = rest.get<Conv2d>(0);
  if (found.conv == nullptr) return {};
  const auto* activation = rest.get<Activation>(1);
  if (activation != nullptr && activation->x.id == found.conv->y.id) found.activation = activation;
  if (!pooled) return found;
  const auto* pool = rest.get<MaxPool>(found.ops());
  if (pool == nullptr || pool->x.id != found.y().id) return {};
  found.pool = pool;
  return found;
}

DirectShape shape_of(const Conv2dShape& conv, bool pooled = false) {
  const Slide &down = conv.window.h, &right = conv.window.w;
  return {conv.in.c,    conv.in.h, conv.in.w, conv.k, down.kernel,
          right.kernel, down.pad,  right.pad, pooled};
}
DirectShape shape_of(const DirectSpan& span) {
  return shape_of(span.conv->shape, span.pool != nullptr);
}
// From the gradient of the output to that of the input.
DirectShape turned(const Conv2dShape& conv) {
  const Slide &down = conv.window.h, &right = conv.window.w;
  const Image out = conv.out();
  return {out.c,
          out.h,
          out.w,
          conv.in.c,
          down.kernel,
          right.kernel,
          down.kernel - 1 - down.pad,
          right.kernel - 1 - right.pad,
          false};
}

// What all rows of this file refuse.
std::string refuse(const Conv2dShape& shape, const Value& x) {
  const Slide &down = shape.window.h, &right = shape.window.w;
  if (!takes(x.dtype)) return "takes fp32 and fp64 only";
  if (x.shape.numel() == 0) return "empty";
  if (shape.groups != 1) return "takes one group";
  if (down.stride != 1 || right.stride != 1) return "takes stride 1 only";
  if (down.dilation != 1 || right.dilation != 1) return "takes no dilation";
  return {};
}

std::string refuse(const DirectSpan& span) {
  const std::string reason = refuse(span.conv->shape, span.conv->x);
  if (!reason.empty() || span.pool == nullptr) return reason;
  const Slide two{2, 2, 0, 1};
  if (span.pool->shape.window != Window{two, two}) return "takes pools of 2 x 2 with stride 2";
  if (span.activation != nullptr && span.activation->kind == ActivationKind::gelu) {
    return "gelu decreases in part";
  }
  return {};
}

// The filters, then each thread's own.
size_t workspace(const DirectShape& shape, DType dtype, int threads) {
  Scratch scratch;
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    scratch.take<T>(direct_filter_elements(shape));
    for (int i = 0; i < threads; ++i) scratch.take<T>(direct_thread_elements<T>(shape));
  });
  return scratch.bytes();
}

Cover covers(const Rest& rest, bool pooled) {
  const DirectSpan span = find(rest, pooled);
  if (span.conv == nullptr) {
    return Cover::no(pooled ? "the next ops are no conv2d and its pool"
                            : "the next op is no conv2d");
  }
  const std::string reason = refuse(span);
  if (!reason.empty()) return Cover::no(reason);
  Cover cover = Cover::of(span.ops());
  Values inner;
  if (span.ops() > 1) inner.push_back(span.conv->y);
  if (span.pool != nullptr && span.activation != nullptr) inner.push_back(span.activation->y);
  for (const Value& value : inner) {
    if (!rest.dead_after(value, span.ops())) {
      return Cover::no("a value between the ops is needed later");
    }
    cover.skips.push_back(value.id);
  }
  cover.workspace =
      workspace(shape_of(span), span.conv->x.dtype, cpu_runtime(rest.runtime).pool().size());
  return cover;
}

// What a direct convolution reads and writes.
struct Operands {
  DirectShape shape;
  Value x, w, b, y;
  Act act = Act::none;
  bool turned = false;
};

template <typename T>
std::unique_ptr<Step> prepare_typed(const Operands& op, const Binding& binding) {
  auto& pool = cpu_runtime(binding.runtime()).pool();
  Scratch scratch(binding.workspace());
  T* filters = scratch.take<T>(direct_filter_elements(op.shape));
  std::vector<T*> own;
  for (int i = 0; i < pool.size(); ++i) {
    own.push_back(scratch.take<T>(direct_thread_elements<T>(op.shape)));
  }
  const DirectArgs<T> args{op.shape, filters, binding.read(op.b).as<T>(), op.act};
  const int64_t n = op.x.shape[0];
  return make_step([args, filters, own, n, turned = op.turned, w = binding.read(op.w).as<T>(),
                    x = binding.read(op.x).as<T>(), y = binding.write(op.y).as<T>(),
                    in = op.x.shape.numel() / n, out = op.y.shape.numel() / n, &pool] {
    arrange_filters(args.shape, w, turned, filters);
    pool.run([&](int thread) {
      const Range images = split(n, thread, pool.size());
      for (int64_t i = images.begin; i < images.end; ++i) {
        direct_kernels<T>().image(args, x + i * in, y + i * out, own[size_t(thread)]);
      }
    });
  });
}

std::unique_ptr<Step> prepare(const Operands& op, const Binding& binding) {
  return op.x.dtype == DType::fp32 ? prepare_typed<float>(op, binding)
                                   : prepare_typed<double>(op, binding);
}

Operands operands(const DirectSpan& span) {
  const Conv2d& op = *span.conv;
  return {shape_of(span), op.x,
          op.w,           op.b,
          span.y(),       span.activation != nullptr ? act_of(span.activation->kind) : Act::none};
}

Impl row(std::string name, bool pooled) {
  Impl row;
  row.name = std::move(name);
  row.covers = [pooled](const Rest& rest) { return covers(rest, pooled); };
  row.prepare = [pooled](const Span& span, const Binding& binding) {
    return prepare(operands(find({span.program, span.begin, binding.runtime()}, pooled)), binding);
  };
  return row;
}

// One convolution, whatever follows it.
Impl alone() {
  Impl row;
  row.name = "cpu.conv2d.direct";
  row.covers = [](const Rest& rest) {
    DirectSpan span;
    span.conv = rest.get<Conv2d>(0);
    if (span.conv == nullptr) return Cover::no("the next op is no conv2d");
    const std::string reason = refuse(span);
    if (!reason.empty()) return Cover::no(reason);
    Cover cover = Cover::of(1);
    cover.workspace =
        workspace(shape_of(span), span.conv->x.dtype, cpu_runtime(rest.runtime).pool().size());
    return cover;
  };
  row.prepare = [](const Span& span, const Binding& binding) {
    DirectSpan one;
    one.conv = &span.get<Conv2d>(0);
    return prepare(operands(one), binding);
  };
  return row;
}

Impl grad_x() {
  Impl row;
  row.name = "cpu.conv2d_grad_x.direct";
  row.covers = [](const Rest& rest) {
    const auto* op = rest.get<Conv2dGradX>(0);
    if (op == nullptr) return Cover::no("the next op is no conv2d_grad_x");
    std::string reason = refuse(op->shape, op->dy);
    const DirectShape shape = turned(op->shape);
    if (shape.pad_h < 0 || shape.pad_w < 0) reason = "takes padding smaller than the filter";
    if (!reason.empty()) return Cover::no(reason);
    Cover cover = Cover::of(1);
    cover.workspace = workspace(shape, op->dy.dtype, cpu_runtime(rest.runtime).pool().size());
    return cover;
  };
  row.prepare = [](const Span& span, const Binding& binding) {
    const auto& op = span.get<Conv2dGradX>(0);
    return prepare({turned(op.shape), op.dy, op.w, {}, op.dx, Act::none, true}, binding);
  };
  return row;
}

// The padded planes of x and dy, then each thread's own sums.
template <typename T>
struct GradWScratch {
  T *x, *dy;
  std::vector<T*> own;
  size_t bytes;

  GradWScratch(const DirectShape& shape, int64_t n, int threads, std::byte* base) {
    Scratch scratch(base);
    x = scratch.take<T>(size_t(n * shape.c * direct_plane<T>(shape)));
    dy = scratch.take<T>(size_t(n * shape.k * direct_plane<T>(shape)));
    for (int i = 0; i < threads; ++i) {
      own.push_back(scratch.take<T>(direct_grad_kernels<T>().scratch(shape)));
    }
    bytes = scratch.bytes();
  }
};

template <typename T>
std::unique_ptr<Step> prepare_grad_w(const Conv2dGradW& op, const Binding& binding) {
  auto& pool = cpu_runtime(binding.runtime()).pool();
  const DirectShape shape = shape_of(op.shape);
  const GradWScratch<T> scratch(shape, op.n(), pool.size(), binding.workspace());
  const DirectGradArgs<T> args{
      shape,     op.n(),     binding.read(op.x).as<T>(),   binding.read(op.dy).as<T>(),
      scratch.x, scratch.dy, binding.write(op.dw).as<T>(), binding.write(op.db).as<T>()};
  const auto& kernels = direct_grad_kernels<T>();
  const int64_t block = kernels.block(shape.kernel_w);
  const int64_t units = (shape.k + block - 1) / block * shape.c * shape.kernel_h;
  return make_step([args, units, own = scratch.own, &kernels, &pool] {
    pool.run([&](int thread) {
      kernels.pad(args, split(args.n, thread, pool.size()));
      pool.barrier();
      kernels.gradient(args, split(units, thread, pool.size()), own[size_t(thread)]);
    });
  });
}

Impl grad_w() {
  Impl row;
  row.name = "cpu.conv2d_grad_w.direct";
  row.covers = [](const Rest& rest) {
    const auto* op = rest.get<Conv2dGradW>(0);
    if (op == nullptr) return Cover::no("the next op is no conv2d_grad_w");
    std::string reason = refuse(op->shape, op->x);
    if (op->shape.window.w.kernel > kMostGradTaps) reason = "takes filters of up to 7 columns";
    if (!reason.empty()) return Cover::no(reason);
    Cover cover = Cover::of(1);
    with_type(op->x.dtype, [&](auto zero) {
      const int threads = cpu_runtime(rest.runtime).pool().size();
      cover.workspace =
          GradWScratch<decltype(zero)>(shape_of(op->shape), op->n(), threads, nullptr).bytes;
    });
    return cover;
  };
  row.prepare = [](const Span& span, const Binding& binding) {
    const auto& op = span.get<Conv2dGradW>(0);
    return op.x.dtype == DType::fp32 ? prepare_grad_w<float>(op, binding)
                                     : prepare_grad_w<double>(op, binding);
  };
  return row;
}

}  // namespace

Table conv_rows() {
  return {row("cpu.conv2d_pool.direct", true),
          row("cpu.conv2d_activation.direct", false),
          alone(),
          window_grad_row(),
          grad_x(),
          grad_w()};
}

}  // namespace ridgeline::cpu::simd
