#include <cmath>

#include "ridgeline/cpu/simd/row.h"
#include "ridgeline/cpu/simd/update.h"

namespace ridgeline::cpu::simd {
namespace {

double first_or_one(const double* value) { return value != nullptr ? *value : 1.0; }

template <typename T>
std::unique_ptr<Step> prepare_sgd(const SgdUpdate& op, const Binding& binding) {
  const SgdArgs<T> args{binding.read(op.dw).as<T>(),
                        1,
                        0,
                        binding.write(op.w).as<T>(),
                        binding.write(op.m).as<T>(),
                        {0, T(op.momentum), T(op.weight_decay), op.nesterov}};
  return make_step([args, count = op.w.shape.numel(), lr = binding.read(op.lr).as<double>(),
                    tick = binding.read(op.tick).as<int32_t>(),
                    scale = binding.read(op.grad_scale).as<double>(),
                    &pool = cpu_runtime(binding.runtime()).pool()] {
    SgdArgs<T> now = args;
    now.sgd.lr = T(lr[*tick]);
    now.scale = T(first_or_one(scale));
    pool.run([&](int thread) {
      update_kernels<T>().sgd(now, split(count, thread, pool.size(), kGroup<T>));
    });
  });
}

template <typename T>
std::unique_ptr<Step> prepare_adam(const AdamUpdate& op, const Binding& binding) {
  const AdamArgs<T> args{binding.read(op.dw).as<T>(),
                         binding.write(op.w).as<T>(),
                         binding.write(op.m).as<T>(),
                         binding.write(op.v).as<T>(),
                         1,
                         0,
                         T(op.weight_decay),
                         op.decoupled,
                         T(1 - op.beta1),
                         T(1 - op.beta2),
                         0,
                         0,
                         T(op.epsilon)};
  return make_step(
      [args, beta1 = op.beta1, beta2 = op.beta2, count = op.w.shape.numel(),
       lr = binding.read(op.lr).as<double>(), step = binding.read(op.step).as<int64_t>(),
       tick = binding.read(op.tick).as<int32_t>(), scale = binding.read(op.grad_scale).as<double>(),
       &pool = cpu_runtime(binding.runtime()).pool()] {
        const double t = double(*step + *tick + 1);
        AdamArgs<T> now = args;
        now.scale = T(first_or_one(scale));
        now.lr = T(lr[*tick]);
        now.rate = T(lr[*tick] / (1.0 - std::pow(beta1, t)));
        now.v_factor = T(1.0 / (1.0 - std::pow(beta2, t)));
        pool.run([&](int thread) {
          update_kernels<T>().adam(now, split(count, thread, pool.size(), kGroup<T>));
        });
      });
}

template <typename Op>
Impl row_of(const char* name, std::unique_ptr<Step> (*fp32)(const Op&, const Binding&),
            std::unique_ptr<Step> (*fp64)(const Op&, const Binding&)) {
  Impl row;
  row.name = name;
  row.covers = [](const Rest& rest) {
    const std::string reason = refuses(rest, &Op::w);
    return reason.empty() ? Cover::of(1) : Cover::no(reason);
  };
  row.prepare = [fp32, fp64](const Span& span, const Binding& binding) {
    const auto& op = span.get<Op>(0);
    return (op.w.dtype == DType::fp32 ? fp32 : fp64)(op, binding);
  };
  return row;
}

}  // namespace

Table update_rows() {
  return {row_of<SgdUpdate>("cpu.sgd.simd", prepare_sgd<float>, prepare_sgd<double>),
          row_of<AdamUpdate>("cpu.adam.simd", prepare_adam<float>, prepare_adam<double>)};
}

}  // namespace ridgeline::cpu::simd
