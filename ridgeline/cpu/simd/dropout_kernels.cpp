#include "ridgeline/cpu/simd/dropout.h"
#include "ridgeline/cpu/simd/kernel.h"

namespace ridgeline::cpu::simd {
namespace {

template <typename T>
std::unique_ptr<Step> prepare_dropout(const Dropout& op, const Binding& binding) {
  const int64_t count = op.x.shape.numel();
  const int64_t first = op.mask.sample_offset * (count / op.x.shape[0]);
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
}

}  // namespace

KernelTable dropout_kernels() {
  Kernel kernel;
  kernel.name = "cpu.dropout.simd";
  kernel.covers = [](const RemainingOps& rest) {
    const std::string reason = refuses(rest, &Dropout::x);
    return reason.empty() ? Cover::of(1) : Cover::no(reason);
  };
  kernel.prepare = [](const Span& span, const Binding& binding) {
    const auto& op = span.get<Dropout>(0);
    return op.x.dtype == DType::fp32 ? prepare_dropout<float>(op, binding)
                                     : prepare_dropout<double>(op, binding);
  };
  return computing_in(kFloatAndDouble, {kernel});
}

}  // namespace ridgeline::cpu::simd
