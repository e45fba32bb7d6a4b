#include "ridgeline/cpu/simd/kernel.h"
#include "ridgeline/cpu/simd/unary.h"

namespace ridgeline::cpu::simd {
namespace {

std::unique_ptr<Step> prepare_unary(const Span& span, const Binding& binding) {
  const auto& op = span.get<Unary>(0);
  return with_type(op.x.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    return make_step([kind = op.kind, count = op.x.shape.numel(), x = binding.read(op.x).as<T>(),
                      y = binding.write(op.y).as<T>(),
                      &pool = cpu_runtime(binding.runtime()).pool()] {
      pool.share(count, kGroup<T>, kLeastElements, [&](Range part) {
        unary_functions<T>().value(kind, x + part.begin, y + part.begin, part.end - part.begin);
      });
    });
  });
}

std::unique_ptr<Step> prepare_unary_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<UnaryGrad>(0);
  return with_type(op.x.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    return make_step([kind = op.kind, count = op.x.shape.numel(), x = binding.read(op.x).as<T>(),
                      dy = binding.read(op.dy).as<T>(), dx = binding.write(op.dx).as<T>(),
                      &pool = cpu_runtime(binding.runtime()).pool()] {
      pool.share(count, kGroup<T>, kLeastElements, [&](Range part) {
        unary_functions<T>().gradient(kind, x + part.begin, dy + part.begin, dx + part.begin,
                                      part.end - part.begin);
      });
    });
  });
}

template <typename Op>
Kernel unary_kernel(std::unique_ptr<Step> (*prepare)(const Span&, const Binding&)) {
  Kernel kernel;
  kernel.name = fmt::format("cpu.{}.simd", Op::kName);
  kernel.covers = [](const RemainingOps& rest) {
    const std::string reason = refuses(rest, &Op::x);
    return reason.empty() ? Cover::of(1) : Cover::no(reason);
  };
  kernel.prepare = prepare;
  return kernel;
}

}  // namespace

KernelTable unary_kernels() {
  return computing_in(kFloatAndDouble, {unary_kernel<Unary>(prepare_unary),
                                        unary_kernel<UnaryGrad>(prepare_unary_grad)});
}

}  // namespace ridgeline::cpu::simd
