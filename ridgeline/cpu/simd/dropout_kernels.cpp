#include "ridgeline/cpu/simd/dropout.h"
#include "ridgeline/cpu/simd/kernel.h"

namespace ridgeline::cpu::simd {
namespace {

std::unique_ptr<Step> prepare_dropout(const Span& span, const Binding& binding) {
  const auto& op = span.get<Dropout>(0);
  const int64_t count = op.x.shape.numel();
  const int64_t first = op.mask.sample_offset * (count / op.x.shape[0]);
  return with_type(op.x.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    const DropoutArgs<T> args{
        binding.read(op.x).as<T>(), binding.write(op.y).as<T>(), op.mask.seed, 0, uint64_t(first),
        float(op.mask.p),           T(1.0 / (1.0 - op.mask.p))};
    return make_step([args, count, layer = op.mask.layer, kernel = dropout_functions<T>().flat,
                      step = binding.read(op.step).as<int64_t>(),
                      tick = binding.read(op.tick).as<int32_t>(),
                      &pool = cpu_runtime(binding.runtime()).pool()] {
      DropoutArgs<T> now = args;
      now.stream = DropoutMask::stream(layer, uint64_t(*step + *tick));
      pool.share(count, 64, kLeastElements / 4, [&](Range part) { kernel(now, part); });
    });
  });
}

}  // namespace

KernelTable dropout_kernels() {
  return computing_in(kFloatAndDouble, {one_op_kernel(&Dropout::x, prepare_dropout)});
}

}  // namespace ridgeline::cpu::simd
