#include "ridgeline/cpu/reference/kernel.h"

namespace ridgeline::cpu {
namespace {

// y[r, o] = b[o] + sum_i x[r, i] w[o, i]
std::unique_ptr<Step> prepare_linear(const Linear& op, ReferenceBinding& binding) {
  return make_step([n = op.n(), in = op.in(), out = op.out(),
                    &pool = cpu_runtime(binding.runtime()).pool(), x = binding.reads(op.x),
                    w = binding.reads(op.w), b = binding.reads(op.b),
                    y = binding.writes(op.y)]() mutable {
    x.load();
    w.load();
    b.load();
    for_each(pool, n, [&](int64_t r) {
      for (int64_t o = 0; o < out; ++o) {
        double sum = b ? b[o] : 0.0;
        for (int64_t i = 0; i < in; ++i) sum += x[r * in + i] * w[o * in + i];
        y[r * out + o] = sum;
      }
    });
    y.store();
  });
}

// dx[r, i] = sum_o dy[r, o] w[o, i]
std::unique_ptr<Step> prepare_linear_grad_x(const LinearGradX& op, ReferenceBinding& binding) {
  return make_step([n = op.n(), in = op.in(), out = op.out(),
                    &pool = cpu_runtime(binding.runtime()).pool(), dy = binding.reads(op.dy),
                    w = binding.reads(op.w), dx = binding.writes(op.dx)]() mutable {
    dy.load();
    w.load();
    for_each(pool, n, [&](int64_t r) {
      for (int64_t i = 0; i < in; ++i) dx[r * in + i] = 0;
      for (int64_t o = 0; o < out; ++o) {
        for (int64_t i = 0; i < in; ++i) dx[r * in + i] += dy[r * out + o] * w[o * in + i];
      }
    });
    dx.store();
  });
}

// dw[o, i] = sum_r dy[r, o] x[r, i];  db[o] = sum_r dy[r, o]
std::unique_ptr<Step> prepare_linear_grad_w(const LinearGradW& op, ReferenceBinding& binding) {
  return make_step([n = op.n(), in = op.in(), out = op.out(),
                    &pool = cpu_runtime(binding.runtime()).pool(), x = binding.reads(op.x),
                    dy = binding.reads(op.dy), dw = binding.writes(op.dw),
                    db = binding.writes(op.db)]() mutable {
    x.load();
    dy.load();
    for_each(pool, out, [&](int64_t o) {
      for (int64_t i = 0; i < in; ++i) dw[o * in + i] = 0;
      if (db) db[o] = 0;
      for (int64_t r = 0; r < n; ++r) {
        for (int64_t i = 0; i < in; ++i) dw[o * in + i] += dy[r * out + o] * x[r * in + i];
        if (db) db[o] += dy[r * out + o];
      }
    });
    dw.store();
    db.store();
  });
}

}  // namespace

KernelTable linear_reference() {
  return {reference_kernel(prepare_linear), reference_kernel(prepare_linear_grad_x),
          reference_kernel(prepare_linear_grad_w)};
}

}  // namespace ridgeline::cpu
