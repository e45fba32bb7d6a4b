#include <algorithm>
#include <cmath>

#include "ridgeline/cpu/reference/kernel.h"
#include "ridgeline/cpu/reference/score.h"

namespace ridgeline::cpu {
namespace {

// sum_c exp(x[c] - max x)
struct Stats {
  double max, sum;
};
Stats softmax_stats(const double* x, int64_t classes) {
  const double max = *std::max_element(x, x + classes);
  double sum = 0;
  for (int64_t c = 0; c < classes; ++c) sum += std::exp(x[c] - max);
  return {max, sum};
}

std::unique_ptr<Step> prepare_xent(const SoftmaxXent& op, ReferenceBinding& binding) {
  return make_step([n = op.x.shape[0], classes = op.x.shape[1], scale = op.scale,
                    label = binding.read(op.label), score = Score(binding, op),
                    x = binding.reads(op.x)]() mutable {
    x.load();
    double loss = 0;
    int32_t correct = 0;
    for (int64_t r = 0; r < n; ++r) {
      const double* row = x.data() + r * classes;
      const int32_t target = label.as<int32_t>()[r];
      const auto [max, sum] = softmax_stats(row, classes);
      loss += std::log(sum) + (max - row[target]);
      correct += first_largest(row, classes) == target;
    }
    score.write(scale * loss, correct);
  });
}

std::unique_ptr<Step> prepare_xent_grad(const SoftmaxXentGrad& op, ReferenceBinding& binding) {
  return make_step([n = op.x.shape[0], classes = op.x.shape[1], fixed = op.scale,
                    loss_scale = binding.read(op.loss_scale), label = binding.read(op.label),
                    x = binding.reads(op.x), dx = binding.writes(op.dx)]() mutable {
    x.load();
    const double scale = fixed * first_or(loss_scale, 1.0);
    for (int64_t r = 0; r < n; ++r) {
      const double* row = x.data() + r * classes;
      const auto [max, sum] = softmax_stats(row, classes);
      for (int64_t c = 0; c < classes; ++c) {
        const double target = c == label.as<int32_t>()[r] ? 1.0 : 0.0;
        dx[r * classes + c] = scale * (std::exp(row[c] - max) / sum - target);
      }
    }
    dx.store();
  });
}

std::unique_ptr<Step> prepare_softmax(const Softmax& op, ReferenceBinding& binding) {
  return make_step([n = op.x.shape[0], classes = op.x.shape[1], x = binding.reads(op.x),
                    y = binding.writes(op.y)]() mutable {
    x.load();
    for (int64_t r = 0; r < n; ++r) {
      const double* row = x.data() + r * classes;
      const auto [max, sum] = softmax_stats(row, classes);
      for (int64_t c = 0; c < classes; ++c) y[r * classes + c] = std::exp(row[c] - max) / sum;
    }
    y.store();
  });
}

std::unique_ptr<Step> prepare_argmax(const Argmax& op, ReferenceBinding& binding) {
  return make_step([n = op.x.shape[0], classes = op.x.shape[1], x = binding.reads(op.x),
                    y = binding.write(op.y)]() mutable {
    x.load();
    for (int64_t r = 0; r < n; ++r) {
      y.as<int32_t>()[r] = int32_t(first_largest(x.data() + r * classes, classes));
    }
  });
}

}  // namespace

KernelTable softmax_reference() {
  return {reference_kernel(prepare_xent), reference_kernel(prepare_xent_grad),
          reference_kernel(prepare_softmax), reference_kernel(prepare_argmax)};
}

}  // namespace ridgeline::cpu
