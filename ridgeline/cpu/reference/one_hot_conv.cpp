#include "ridgeline/cpu/reference/kernel.h"

namespace ridgeline::cpu {
namespace {

std::unique_ptr<Step> prepare_one_hot(const OneHotConv1d& op, ReferenceBinding& binding) {
  return make_step([op, &pool = cpu_runtime(binding.runtime()).pool(),
                    token = binding.read(op.token).as<const int32_t>(), w = binding.reads(op.w),
                    b = binding.reads(op.b), y = binding.writes(op.y)]() mutable {
    const int64_t outs = op.out(), steps = op.steps(), kernel = op.kernel();
    w.load();
    b.load();
    for_each(pool, op.n() * outs, [&](int64_t io) {
      const int32_t* text = token + io / outs * op.length();
      const int64_t o = io % outs;
      for (int64_t t = 0; t < steps; ++t) {
        double sum = b ? b[o] : 0.0;
        for (int64_t u = 0; u < kernel; ++u) {
          const int64_t s = text[t + u];
          if (s < op.symbols()) sum += w[(o * op.symbols() + s) * kernel + u];
        }
        y[io * steps + t] = sum;
      }
    });
    y.store();
  });
}

std::unique_ptr<Step> prepare_one_hot_grad_w(const OneHotConv1dGradW& op,
                                             ReferenceBinding& binding) {
  return make_step([op, &pool = cpu_runtime(binding.runtime()).pool(),
                    token = binding.read(op.token).as<const int32_t>(), dy = binding.reads(op.dy),
                    dw = binding.writes(op.dw), db = binding.writes(op.db)]() mutable {
    const int64_t outs = op.out(), steps = op.steps(), kernel = op.kernel();
    const int64_t filter = op.symbols() * kernel;
    dy.load();
    for_each(pool, outs, [&](int64_t o) {
      for (int64_t tap = o * filter; tap < (o + 1) * filter; ++tap) dw[tap] = 0;
      if (db) db[o] = 0;
      for (int64_t i = 0; i < op.n(); ++i) {
        const int32_t* text = token + i * op.length();
        for (int64_t t = 0; t < steps; ++t) {
          const double d = dy[(i * outs + o) * steps + t];
          if (db) db[o] += d;
          for (int64_t u = 0; u < kernel; ++u) {
            const int64_t s = text[t + u];
            if (s < op.symbols()) dw[o * filter + s * kernel + u] += d;
          }
        }
      }
    });
    dw.store();
    db.store();
  });
}

}  // namespace

KernelTable one_hot_conv_reference() {
  return {reference_kernel(prepare_one_hot), reference_kernel(prepare_one_hot_grad_w)};
}

}  // namespace ridgeline::cpu
