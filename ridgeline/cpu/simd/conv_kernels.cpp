#include "ridgeline/cpu/simd/conv_images.h"
#include "ridgeline/cpu/simd/conv_span.h"
#include "ridgeline/cpu/simd/direct_conv_grad.h"

namespace ridgeline::cpu::simd {
namespace {

// The convolution with flipped filters that maps the gradient of the output to that of the input.
DirectShape flipped(const Conv2dShape& conv) {
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

int threads_of(const RemainingOps& rest) { return cpu_runtime(rest.runtime).pool().size(); }

ImageConv image_conv(const ConvSpan& span, ConvAlgorithm algorithm) {
  return {span.shape(), span.act(), algorithm, false, span.conv->w, span.conv->b};
}

Kernel conv_kernel(std::string name, ConvReach reach, ConvAlgorithm algorithm) {
  Kernel kernel;
  kernel.name = std::move(name);
  kernel.traits.precisions = algorithm == ConvAlgorithm::direct ? kFloatAndDouble : kFloatOnly;
  kernel.covers = [reach, algorithm](const RemainingOps& rest) {
    Cover cover = cover_conv(rest, reach);
    if (cover.ops == 0) return cover;
    const ConvSpan span = find_conv(rest, reach);
    const ImageConv conv = image_conv(span, algorithm);
    const DType dtype = span.conv->x.dtype;
    if (algorithm == ConvAlgorithm::winograd1d) {
      if (std::string reason = refuse_winograd1d(conv, dtype); !reason.empty()) {
        return Cover::no(std::move(reason));
      }
    }
    cover.workspace = conv_images_workspace({conv}, dtype, threads_of(rest));
    return cover;
  };
  kernel.prepare = [reach, algorithm](const Span& span, const Binding& binding) {
    const ConvSpan found = find_conv({span.program, span.begin, binding.runtime()}, reach);
    return conv_images_step({image_conv(found, algorithm)}, found.conv->x, found.y(), binding);
  };
  return kernel;
}

// A chain of convolutions with their activations and pools, each reading the output of the one
// before. Winograd is used if its error bound allows.
struct ConvChain {
  std::vector<ConvSpan> spans;
  size_t ops = 0;

  std::vector<ImageConv> convs() const {
    std::vector<ImageConv> all;
    for (const ConvSpan& span : spans) {
      ImageConv conv = image_conv(span, ConvAlgorithm::winograd1d);
      if (!refuse_winograd1d(conv, span.conv->x.dtype).empty())
        conv.algorithm = ConvAlgorithm::direct;
      all.push_back(conv);
    }
    return all;
  }
};

ConvChain find_chain(const RemainingOps& rest, Cover& cover) {
  ConvChain chain;
  for (;;) {
    const RemainingOps from{rest.program, rest.begin + chain.ops, rest.runtime};
    ConvReach reach = ConvReach::pooled;
    Cover next = cover_conv(from, reach);
    if (next.ops == 0) next = cover_conv(from, reach = ConvReach::activated);
    if (next.ops == 0) break;
    const ConvSpan span = find_conv(from, reach);
    if (!chain.spans.empty()) {
      const Value& before = chain.spans.back().y();
      if (span.conv->x.id != before.id || !rest.dead_after(before, chain.ops + next.ops)) break;
      cover.skips.push_back(before.id);
    }
    cover.skips.insert(cover.skips.end(), next.skips.begin(), next.skips.end());
    chain.spans.push_back(span);
    chain.ops += next.ops;
  }
  return chain;
}

Kernel chain_kernel() {
  Kernel kernel;
  kernel.name = "cpu.conv2d_chain.images";
  kernel.covers = [](const RemainingOps& rest) {
    if (rest.get<Conv2d>(0) == nullptr) return Cover::no("the next op is no conv2d");
    Cover cover;
    const ConvChain chain = find_chain(rest, cover);
    if (chain.spans.size() < 2) return Cover::no("takes two or more consecutive convolutions");
    cover.ops = chain.ops;
    cover.workspace =
        conv_images_workspace(chain.convs(), chain.spans[0].conv->x.dtype, threads_of(rest));
    return cover;
  };
  kernel.prepare = [](const Span& span, const Binding& binding) {
    Cover cover;
    const ConvChain chain = find_chain({span.program, span.begin, binding.runtime()}, cover);
    return conv_images_step(chain.convs(), chain.spans.front().conv->x, chain.spans.back().y(),
                            binding);
  };
  return kernel;
}

ImageConv flipped_conv(const Conv2dGradX& op) {
  return {flipped(op.shape), ActivationKind::none, ConvAlgorithm::direct, true, op.w, {}};
}

Kernel grad_x() {
  Kernel kernel;
  kernel.name = "cpu.conv2d_grad_x.direct";
  kernel.covers = [](const RemainingOps& rest) {
    const auto* op = rest.get<Conv2dGradX>(0);
    if (op == nullptr) return Cover::no("the next op is no conv2d_grad_x");
    std::string reason = refuse_conv(op->shape, op->dy);
    const DirectShape shape = flipped(op->shape);
    if (shape.pad_h < 0 || shape.pad_w < 0) reason = "takes padding smaller than the filter";
    if (!reason.empty()) return Cover::no(reason);
    Cover cover = Cover::of(1);
    cover.workspace = conv_images_workspace({flipped_conv(*op)}, op->dy.dtype, threads_of(rest));
    return cover;
  };
  kernel.prepare = [](const Span& span, const Binding& binding) {
    const auto& op = span.get<Conv2dGradX>(0);
    return conv_images_step({flipped_conv(op)}, op.dy, op.dx, binding);
  };
  return kernel;
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
      own.push_back(scratch.take<T>(direct_grad_functions<T>().scratch(shape)));
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
  const auto& functions = direct_grad_functions<T>();
  const int64_t block = functions.block(shape.kernel_w);
  const int64_t units = (shape.k + block - 1) / block * shape.c * shape.kernel_h;
  return make_step([args, units, own = scratch.own, &functions, &pool] {
    pool.run([&](int thread) {
      functions.pad(args, split(args.n, thread, pool.size()));
      pool.barrier();
      functions.gradient(args, split(units, thread, pool.size()), own[size_t(thread)]);
    });
  });
}

Kernel grad_w() {
  Kernel kernel;
  kernel.name = "cpu.conv2d_grad_w.direct";
  kernel.covers = [](const RemainingOps& rest) {
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
  kernel.prepare = [](const Span& span, const Binding& binding) {
    const auto& op = span.get<Conv2dGradW>(0);
    return op.x.dtype == DType::fp32 ? prepare_grad_w<float>(op, binding)
                                     : prepare_grad_w<double>(op, binding);
  };
  return kernel;
}

Kernel max_pool() {
  Kernel kernel;
  kernel.name = "cpu.max_pool.simd";
  kernel.covers = [](const RemainingOps& rest) {
    std::string reason = refuses(rest, &MaxPool::x);
    const Slide two{2, 2, 0, 1};
    if (reason.empty() && rest.get<MaxPool>(0)->shape.window != Window{two, two}) {
      reason = "takes pools of 2 x 2 with stride 2";
    }
    return reason.empty() ? Cover::of(1) : Cover::no(std::move(reason));
  };
  kernel.prepare = [](const Span& span, const Binding& binding) {
    const auto& op = span.get<MaxPool>(0);
    return with_type(op.x.dtype, [&](auto zero) -> std::unique_ptr<Step> {
      using T = decltype(zero);
      const Image in = op.shape.in;
      return make_step([x = binding.read(op.x).as<T>(), y = binding.write(op.y).as<T>(), in,
                        planes = op.n() * in.c, out = op.shape.out().pixels(),
                        &pool = cpu_runtime(binding.runtime()).pool()] {
        pool.share(planes, 1, kLeastElements / in.pixels() + 1, [&](Range part) {
          for (int64_t p = part.begin; p < part.end; ++p) {
            direct_functions<T>().pool(x + p * in.pixels(), in.h, in.w, y + p * out);
          }
        });
      });
    });
  };
  return kernel;
}

}  // namespace

KernelTable conv_kernels() {
  KernelTable table = computing_in(
      kFloatAndDouble, {chain_kernel(), pool_sparse_grad_kernel(), grad_x(), grad_w(), max_pool()});
  const KernelTable convs{
      conv_kernel("cpu.conv2d_pool.winograd1d", ConvReach::pooled, ConvAlgorithm::winograd1d),
      conv_kernel("cpu.conv2d_pool.direct", ConvReach::pooled, ConvAlgorithm::direct),
      conv_kernel("cpu.conv2d_activation.winograd1d", ConvReach::activated,
                  ConvAlgorithm::winograd1d),
      conv_kernel("cpu.conv2d_activation.direct", ConvReach::activated, ConvAlgorithm::direct),
      conv_kernel("cpu.conv2d.winograd1d", ConvReach::alone, ConvAlgorithm::winograd1d),
      conv_kernel("cpu.conv2d.direct", ConvReach::alone, ConvAlgorithm::direct)};
  table.insert(table.begin() + 1, convs.begin(), convs.end());  // the longest spans stay first
  return table;
}

}  // namespace ridgeline::cpu::simd
