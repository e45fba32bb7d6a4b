#include "ridgeline/cpu/simd/batch_norm.h"
#include "ridgeline/cpu/simd/kernel.h"

namespace ridgeline::cpu::simd {
namespace {

// Divides the channels over the threads. Threads must not write the same line of flat results.
template <typename T, typename Args, typename F>
void share_channels(ThreadPool& pool, const Args& args, F f) {
  const int64_t grain = args.pixels == 1 ? kGroup<T> : 1;
  pool.share(args.channels, grain, kLeastElements / (args.n * args.pixels) + 1, f);
}

std::unique_ptr<Step> prepare_norm(const Span& span, const Binding& binding) {
  const auto& op = span.get<BatchNorm>(0);
  return with_type(op.x.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    const BatchNormArgs<T> args{op.n(),
                                op.in.c,
                                op.in.pixels(),
                                binding.read(op.x).as<T>(),
                                binding.read(op.gamma).as<T>(),
                                binding.read(op.beta).as<T>(),
                                binding.write(op.running_mean).as<T>(),
                                binding.write(op.running_var).as<T>(),
                                binding.write(op.y).as<T>(),
                                binding.write(op.mean).as<T>(),
                                binding.write(op.rstd).as<T>(),
                                op.epsilon,
                                op.momentum};
    return make_step([args, batches = binding.write(op.batches).as<int64_t>(),
                      &pool = cpu_runtime(binding.runtime()).pool()] {
      share_channels<T>(pool, args,
                        [&](Range channels) { batch_norm_functions<T>().forward(args, channels); });
      ++*batches;
    });
  });
}

std::unique_ptr<Step> prepare_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<BatchNormGrad>(0);
  return with_type(op.x.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    const BatchNormGradArgs<T> args{op.n(),
                                    op.in.c,
                                    op.in.pixels(),
                                    binding.read(op.x).as<T>(),
                                    binding.read(op.gamma).as<T>(),
                                    binding.read(op.mean).as<T>(),
                                    binding.read(op.rstd).as<T>(),
                                    binding.read(op.dy).as<T>(),
                                    binding.write(op.dx).as<T>(),
                                    binding.write(op.dgamma).as<T>(),
                                    binding.write(op.dbeta).as<T>()};
    return make_step([args, &pool = cpu_runtime(binding.runtime()).pool()] {
      share_channels<T>(pool, args,
                        [&](Range channels) { batch_norm_functions<T>().grad(args, channels); });
    });
  });
}

}  // namespace

KernelTable batch_norm_kernels() {
  return computing_in(kFloatAndDouble, {one_op_kernel(&BatchNorm::x, prepare_norm),
                                        one_op_kernel(&BatchNormGrad::x, prepare_grad)});
}

}  // namespace ridgeline::cpu::simd
