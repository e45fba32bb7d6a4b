#include "ridgeline/cpu/reference/kernel.h"
#include "ridgeline/cpu/reference/score.h"

namespace ridgeline::cpu {
namespace {

// The target of element (r, c): given as floats, or as labels that stand for one-hot rows.
class Target {
 public:
  Target(const Value& value, ReferenceBinding& binding, int64_t out)
      : labels_(value.dtype == DType::int32 ? binding.read(value).as<const int32_t>() : nullptr),
        floats_(labels_ == nullptr ? binding.reads(value) : Doubles()),
        out_(out) {}

  void load() { floats_.load(); }
  bool is_label() const { return labels_ != nullptr; }
  int32_t label(int64_t r) const { return labels_[r]; }
  double operator()(int64_t r, int64_t c) const {
    if (is_label()) return labels_[r] == c ? 1.0 : 0.0;
    return floats_[r * out_ + c];
  }

 private:
  const int32_t* labels_;
  Doubles floats_;
  int64_t out_;
};

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
