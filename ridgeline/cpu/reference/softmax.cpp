#include <algorithm>
#include <cmath>

#include "ridgeline/cpu/reference/kernel.h"
#include "ridgeline/cpu/reference/score.h"
#include "ridgeline/cpu/reference/target.h"

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

// The target t of each class, with class weights and label smoothing; see SoftmaxXent.
class ClassTargets {
 public:
  template <typename Op>
  ClassTargets(const Op& op, const Binding& binding)
      : n_(op.x.shape[0]),
        classes_(op.x.shape[1]),
        smoothing_(op.smoothing),
        label_(binding.read(op.label).template as<const int32_t>()),
        weights_(binding.read(op.weights).template as<const double>()) {}

  int32_t label(int64_t r) const { return label_[r]; }
  double operator()(int64_t r, int64_t c) const {
    const double hit = c == label_[r] ? (1 - smoothing_) * weight(c) : 0.0;
    return smoothing_ == 0 ? hit : hit + smoothing_ / double(classes_) * weight(c);
  }
  double sum(int64_t r) const {
    double sum = 0;
    for (int64_t c = 0; c < classes_; ++c) sum += (*this)(r, c);
    return sum;
  }
  // Returns f of the op.
  double factor() const {
    if (weights_ == nullptr) return 1;
    double sum = 0;
    for (int64_t r = 0; r < n_; ++r) sum += weight(label_[r]);
    return double(n_) / sum;
  }

 private:
  double weight(int64_t c) const { return weights_ != nullptr ? weights_[c] : 1.0; }

  int64_t n_, classes_;
  double smoothing_;
  const int32_t* label_;
  const double* weights_;
};

std::unique_ptr<Step> prepare_xent(const SoftmaxXent& op, ReferenceBinding& binding) {
  return make_step([n = op.x.shape[0], classes = op.x.shape[1], scale = op.scale,
                    target = ClassTargets(op, binding), score = Score(binding, op),
                    rows = RowWeights(op, binding), x = binding.reads(op.x)]() mutable {
    x.load();
    rows.load();
    double loss = 0;
    int32_t correct = 0;
    for (int64_t r = 0; r < n; ++r) {
      const double* row = x.data() + r * classes;
      const auto [max, sum] = softmax_stats(row, classes);
      for (int64_t c = 0; c < classes; ++c) {
        const double t = target(r, c);
        if (t != 0) loss += rows[r] * t * (std::log(sum) + (max - row[c]));
      }
      correct += first_largest(row, classes) == target.label(r);
    }
    score.write(scale * target.factor() * loss, correct);
  });
}

std::unique_ptr<Step> prepare_xent_grad(const SoftmaxXentGrad& op, ReferenceBinding& binding) {
  return make_step([n = op.x.shape[0], classes = op.x.shape[1], fixed = op.scale,
                    loss_scale = binding.read(op.loss_scale), target = ClassTargets(op, binding),
                    rows = RowWeights(op, binding), x = binding.reads(op.x),
                    dx = binding.writes(op.dx)]() mutable {
    x.load();
    rows.load();
    const double scale = fixed * target.factor() * first_or(loss_scale, 1.0);
    for (int64_t r = 0; r < n; ++r) {
      const double* row = x.data() + r * classes;
      const auto [max, sum] = softmax_stats(row, classes);
      const double targets = target.sum(r);
      for (int64_t c = 0; c < classes; ++c) {
        dx[r * classes + c] =
            scale * rows[r] * (std::exp(row[c] - max) / sum * targets - target(r, c));
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
