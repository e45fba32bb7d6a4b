#include "ridgeline/cpu/simd/conv_span.h"
#include "ridgeline/cpu/simd/direct_conv_grad.h"

namespace ridgeline::cpu::simd {
namespace {

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

Cover covers(const Rest& rest, ConvReach reach) {
  Cover cover = cover_conv(rest, reach);
  if (cover.ops == 0) return cover;
  const ConvSpan span = find_conv(rest, reach);
  cover.workspace =
      workspace(span.shape(), span.conv->x.dtype, cpu_runtime(rest.runtime).pool().size());
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

Impl row(std::string name, ConvReach reach) {
  Impl row;
  row.name = std::move(name);
  row.covers = [reach](const Rest& rest) { return covers(rest, reach); };
  row.prepare = [reach](const Span& span, const Binding& binding) {
    const ConvSpan found = find_conv({span.program, span.begin, binding.runtime()}, reach);
    const Conv2d& op = *found.conv;
    return prepare({found.shape(), op.x, op.w, op.b, found.y(), found.act()}, binding);
  };
  return row;
}

Impl grad_x() {
  Impl row;
  row.name = "cpu.conv2d_grad_x.direct";
  row.covers = [](const Rest& rest) {
    const auto* op = rest.get<Conv2dGradX>(0);
    if (op == nullptr) return Cover::no("the next op is no conv2d_grad_x");
    std::string reason = refuse_conv(op->shape, op->dy);
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
  const DirectShape shape = direct_shape(op.shape);
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
    std::string reason = refuse_conv(op->shape, op->x);
    if (op->shape.window.w.kernel > kMostGradTaps) reason = "takes filters of up to 7 columns";
    if (!reason.empty()) return Cover::no(reason);
    Cover cover = Cover::of(1);
    with_type(op->x.dtype, [&](auto zero) {
      const int threads = cpu_runtime(rest.runtime).pool().size();
      cover.workspace =
          GradWScratch<decltype(zero)>(direct_shape(op->shape), op->n(), threads, nullptr).bytes;
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
  Table table = toom_conv2d_rows();
  for (Impl row :
       {row("cpu.conv2d_pool.direct", ConvReach::pooled),
        row("cpu.conv2d_activation.direct", ConvReach::activated),
        row("cpu.conv2d.direct", ConvReach::alone), window_grad_row(), grad_x(), grad_w()}) {
    table.push_back(std::move(row));
  }
  return table;
}

}  // namespace ridgeline::cpu::simd
