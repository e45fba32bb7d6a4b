#include "ridgeline/cpu/reference/kernel.h"
#include "ridgeline/cpu/reference/score.h"
#include "ridgeline/cpu/reference/target.h"

namespace ridgeline::cpu {
namespace {

std::unique_ptr<Step> prepare_mse(const Mse& op, ReferenceBinding& binding) {
  const int64_t out = op.x.shape[1];
  return make_step([n = op.x.shape[0], out, scale = op.scale, score = Score(binding, op),
                    target = Target(op.target, binding, out), x = binding.reads(op.x)]() mutable {
    x.load();
    target.load();
    double loss = 0;
    int32_t correct = 0;
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t c = 0; c < out; ++c) {
        const double off = x[r * out + c] - target(r, c);
        loss += off * off;
      }
      if (target.is_label()) {
        correct += first_largest(x.data() + r * out, out) == target.label(r);
      }
    }
    score.write(scale * loss, correct);
  });
}

std::unique_ptr<Step> prepare_mse_grad(const MseGrad& op, ReferenceBinding& binding) {
  const int64_t out = op.x.shape[1];
  return make_step([n = op.x.shape[0], out, fixed = op.scale,
                    loss_scale = binding.read(op.loss_scale),
                    target = Target(op.target, binding, out), x = binding.reads(op.x),
                    dx = binding.writes(op.dx)]() mutable {
    x.load();
    target.load();
    const double scale = fixed * first_or(loss_scale, 1.0);
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t c = 0; c < out; ++c) {
        dx[r * out + c] = 2.0 * scale * (x[r * out + c] - target(r, c));
      }
    }
    dx.store();
  });
}

}  // namespace

KernelTable mse_reference() {
  return {reference_kernel(prepare_mse), reference_kernel(prepare_mse_grad)};
}

}  // namespace ridgeline::cpu
