#include "ridgeline/cpu/simd/kernel.h"
#include "ridgeline/cpu/simd/pool_sparse_grad.h"
#include "ridgeline/plan/pooled_grads.h"

// "cpu.pool_conv2d_grads.pool_sparse": the gradients of a 2 x 2 max pool, of the activation that it
// pools (if any) and of the convolution before it; the lowest layer has no input gradient.
namespace ridgeline::cpu::simd {
namespace {

SimdActivation pooled_act(const PooledGrads& grads) {
  return grads.activation != nullptr ? simd_activation(*grads.activation) : SimdActivation();
}

std::string refuse_pooled_grads(const PooledGrads& grads) {
  const Conv2dShape& shape = grads.w->shape;
  const Slide &down = shape.window.h, &right = shape.window.w, two{2, 2, 0, 1};
  if (!takes(grads.w->x.dtype)) return "takes fp32 and fp64 only";
  if (grads.w->x.shape.numel() == 0) return "empty";
  if (shape.groups != 1) return "takes one group";
  if (down.stride != 1 || right.stride != 1) return "takes stride 1 only";
  if (down.dilation != 1 || right.dilation != 1) return "takes no dilation";
  if (grads.pool->shape.window != Window{two, two}) return "takes pools of 2 x 2 with stride 2";
  if (pooled_act(grads).saves_input())
    return "the activation's gradient takes its input, which the pool did not keep";
  return {};
}

DirectShape shape_of(const Conv2dShape& conv) {
  const Slide &down = conv.window.h, &right = conv.window.w;
  return {conv.in.c,    conv.in.h, conv.in.w, conv.k, down.kernel,
          right.kernel, down.pad,  right.pad, true};
}

// The slices of the workspace: the arguments without the operands, and each thread's scratch.
template <typename T>
struct Slices {
  PoolSparseGradArgs<T> args{};
  std::vector<PoolSparseScratch<T>> own;
  size_t bytes;

  Slices(const PooledGrads& grads, int threads, std::byte* base) {
    const Conv2dGradW& op = *grads.w;
    const DirectShape s = shape_of(op.shape);
    args.shape = s;
    args.n = op.n();
    args.act = pooled_act(grads);
    Scratch scratch(base);
    const auto take = [&]<typename U>(U*& to, int64_t elements) {
      to = scratch.take<U>(size_t(elements));
    };
    take(args.map, args.n * args.map_size());
    take(args.runs, args.n * s.k * args.windows());
    take(args.counts, args.n * s.k);
    const bool dx = grads.x != nullptr;
    if (dx) take(args.filters, s.k * s.kernel_h * args.filter_ld());
    const int64_t lists = dx ? PoolSparseScratch<T>::lists(args) : 0;
    for (int i = 0; i < threads; ++i) {
      PoolSparseScratch<T>& one = own.emplace_back();
      take(one.map, dx ? args.map_size() : 0);
      take(one.runs, lists * kWindowBlock);
      take(one.counts, lists);
      take(one.sums, s.k * s.kernel_h * args.sums_ld());
    }
    bytes = scratch.bytes();
  }
};

Cover covers_pool_sparse_grad(const RemainingOps& rest) {
  const auto found = find_pooled_grads(rest);
  if (!found) return Cover::no("the next ops are no gradients of a pool and its convolution");
  const std::string reason = refuse_pooled_grads(*found);
  if (!reason.empty()) return Cover::no(reason);
  Cover cover = cover_pooled_grads(rest, *found);
  if (cover.ops == 0) return cover;
  with_type(found->w->x.dtype, [&](auto zero) {
    const int threads = cpu_runtime(rest.runtime).pool().size();
    cover.workspace = Slices<decltype(zero)>(*found, threads, nullptr).bytes;
  });
  return cover;
}

template <typename T>
std::unique_ptr<Step> prepare_typed(const PooledGrads& grads, const Binding& binding) {
  auto& pool = cpu_runtime(binding.runtime()).pool();
  Slices<T> slices(grads, pool.size(), binding.workspace());
  PoolSparseGradArgs<T>& args = slices.args;
  args.x = binding.read(grads.w->x).as<T>();
  args.a = binding.read(grads.pool->x).as<T>();
  args.dy = binding.read(grads.pool->dy).as<T>();
  args.dw = binding.write(grads.w->dw).as<T>();
  args.db = binding.write(grads.w->db).as<T>();
  if (grads.x != nullptr) {
    args.w = binding.read(grads.x->w).as<T>();
    args.dx = binding.write(grads.x->dx).as<T>();
  }
  return make_step([args, own = slices.own, &pool] {
    const auto& functions = pool_sparse_grad_functions<T>();
    const DirectShape& s = args.shape;
    pool.run([&](int thread) {
      const auto& mine = own[size_t(thread)];
      if (args.dx != nullptr) {
        functions.arrange(args, split(s.k, thread, pool.size()));
        pool.barrier();
      }
      functions.images(args, split(args.n, thread, pool.size()), mine);
      pool.barrier();
      functions.gradient(args, split(s.k * s.kernel_h, thread, pool.size(), functions.grain(s)),
                         mine);
    });
  });
}

}  // namespace

Kernel pool_sparse_grad_kernel() {
  Kernel kernel;
  kernel.name = "cpu.pool_conv2d_grads.pool_sparse";
  kernel.covers = covers_pool_sparse_grad;
  kernel.prepare = [](const Span& span, const Binding& binding) {
    const PooledGrads grads = *find_pooled_grads({span.program, span.begin, binding.runtime()});
    return grads.w->x.dtype == DType::fp32 ? prepare_typed<float>(grads, binding)
                                           : prepare_typed<double>(grads, binding);
  };
  return kernel;
}

}  // namespace ridgeline::cpu::simd
