#include <algorithm>

#include "ridgeline/cpu/simd/batch.h"
#include "ridgeline/cpu/simd/kernel.h"

namespace ridgeline::cpu::simd {
namespace {

std::unique_ptr<Step> prepare_activation(const Span& span, const Binding& binding) {
  const auto& op = span.get<Activation>(0);
  return with_type(op.x.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    return make_step([act = simd_activation(op), count = op.x.shape.numel(),
                      x = binding.read(op.x).as<T>(), y = binding.write(op.y).as<T>(),
                      &pool = cpu_runtime(binding.runtime()).pool()] {
      pool.share(count, kGroup<T>, kLeastElements, [&](Range part) {
        batch_functions<T>().activate(act, x + part.begin, y + part.begin, part.end - part.begin);
      });
    });
  });
}

std::unique_ptr<Step> prepare_activation_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<ActivationGrad>(0);
  return with_type(op.dy.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    return make_step([act = simd_activation(op), count = op.dy.shape.numel(),
                      saved = binding.read(op.saved).as<T>(), dy = binding.read(op.dy).as<T>(),
                      dx = binding.write(op.dx).as<T>(),
                      &pool = cpu_runtime(binding.runtime()).pool()] {
      pool.share(count, kGroup<T>, kLeastElements, [&](Range part) {
        batch_functions<T>().activation_grad(act, saved + part.begin, dy + part.begin,
                                             dx + part.begin, part.end - part.begin);
      });
    });
  });
}

Cover covers_gather(const RemainingOps& rest) {
  const std::string reason = refuses(rest, &Gather::y);
  if (!reason.empty()) return Cover::no(reason);
  const DType set = rest.get<Gather>(0)->set.dtype;
  if (set != DType::uint8 && set != DType::fp32) return Cover::no("gathers uint8 and fp32 only");
  return Cover::of(1);
}

// Copies samples of floats. A sample is contiguous in the set and in y.
template <typename T>
std::unique_ptr<Step> float_gather(const Gather& op, const Binding& binding) {
  const int64_t n = op.y.shape[0], features = op.y.shape.numel() / n;
  return make_step([n, features, set = binding.read(op.set).as<float>(),
                    order = binding.read(op.order).as<int32_t>(),
                    first = binding.read(op.first).as<int64_t>(),
                    tick = binding.read(op.tick).as<int32_t>(), y = binding.write(op.y).as<T>(),
                    &pool = cpu_runtime(binding.runtime()).pool()] {
    const int32_t* batch = order + *first + int64_t{*tick} * n;
    pool.share(n, 1, kLeastElements / features + 1, [&](Range samples) {
      for (int64_t i = samples.begin; i < samples.end; ++i) {
        std::copy_n(set + int64_t{batch[i]} * features, features, y + i * features);
      }
    });
  });
}

std::unique_ptr<Step> prepare_gather(const Span& span, const Binding& binding) {
  const auto& op = span.get<Gather>(0);
  return with_type(op.y.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    if (op.set.dtype == DType::fp32) return float_gather<T>(op, binding);
    const int64_t n = op.y.shape[0], features = op.y.shape.numel() / n;
    const GatherArgs<T> args{binding.read(op.set).template as<uint8_t>(),
                             nullptr,
                             n,
                             features,
                             T(op.scale),
                             T(op.shift),
                             binding.write(op.y).template as<T>(),
                             features,
                             nullptr};
    return make_step([args, order = binding.read(op.order).template as<int32_t>(),
                      first = binding.read(op.first).template as<int64_t>(),
                      tick = binding.read(op.tick).template as<int32_t>(),
                      &pool = cpu_runtime(binding.runtime()).pool()] {
      GatherArgs<T> now = args;
      now.order = order + *first + int64_t{*tick} * args.n;
      const int64_t block = std::min(now.n, kGatherRows) * kGatherFeatures;
      pool.share(gather_blocks(now.n, now.features), 1, kLeastElements / block,
                 [&](Range blocks) { batch_functions<T>().gather(now, blocks); });
    });
  });
}

}  // namespace

KernelTable elementwise_kernels() {
  Kernel gather;
  gather.name = "cpu.gather.simd";
  gather.covers = covers_gather;
  gather.prepare = prepare_gather;
  return computing_in(kFloatAndDouble,
                      {gather, one_op_kernel(&Activation::x, prepare_activation),
                       one_op_kernel(&ActivationGrad::dy, prepare_activation_grad)});
}

}  // namespace ridgeline::cpu::simd
