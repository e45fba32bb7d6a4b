#include "ridgeline/cpu/simd/kernel.h"
#include "ridgeline/cpu/simd/loss_step.h"
#include "ridgeline/cpu/simd/weighted_xent.h"

namespace ridgeline::cpu::simd {
namespace {

template <typename Op>
Cover covers_weighted_xent(const RemainingOps& rest) {
  const std::string reason = refuses(rest, &Op::x);
  if (!reason.empty()) return Cover::no(reason);
  const auto& op = *rest.get<Op>(0);
  if (op.one_hot()) return Cover::no("takes class or sample weights, or label smoothing");
  return cover_loss(op);
}

// The arguments of both ops, with the weights that each run reads from the program.
template <typename T>
struct XentCall {
  template <typename Op>
  XentCall(const Op& op, const LossScratch<T>& scratch, const Binding& binding)
      : weights(binding.read(op.weights).template as<double>()),
        copies(scratch.weights),
        pool(cpu_runtime(binding.runtime()).pool()) {
    args.x = binding.read(op.x).template as<T>();
    args.label = binding.read(op.label).template as<int32_t>();
    args.weights = scratch.weights;
    args.sample_weights = binding.read(op.sample_weights).template as<T>();
    args.timesteps = op.sample_weights ? op.x.shape[0] / op.sample_weights.shape.numel() : 1;
    args.n = op.x.shape[0];
    args.classes = op.x.shape[1];
    args.smoothing = T(op.smoothing);
  }

  // n / sum_r w[label[r]], which makes a weighted mean of the rows.
  double factor() const {
    if (weights == nullptr) return 1;
    double sum = 0;
    for (int64_t r = 0; r < args.n; ++r) sum += weights[args.label[r]];
    return double(args.n) / sum;
  }

  // The gradient is multiplied by `scale`.
  void run(double scale = 1) const {
    WeightedXentArgs<T> now = args;
    now.factor = T(scale);
    double total = 0;
    for (int64_t c = 0; c < args.classes; ++c) {
      const double weight = weights != nullptr ? weights[c] : 1.0;
      copies[c] = T(weight);
      total += weight;
    }
    now.total = T(total);
    const int64_t least = kLeastElements / (8 * kGroup<T> * args.classes) + 1;
    pool.share(groups_of<T>(args.n), 1, least,
               [&](Range groups) { weighted_xent_functions<T>().run(now, groups); });
  }

  WeightedXentArgs<T> args{};
  const double* weights;
  T* copies;
  ThreadPool& pool;
};

std::unique_ptr<Step> prepare_weighted_loss(const Span& span, const Binding& binding) {
  const auto& op = span.get<SoftmaxXent>(0);
  return with_type(op.x.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    const LossScratch<T> scratch(binding.workspace(), op.x.shape);
    return make_loss_step(XentCall<T>(op, scratch, binding), op, scratch, true, binding);
  });
}

std::unique_ptr<Step> prepare_weighted_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<SoftmaxXentGrad>(0);
  return with_type(op.x.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    XentCall<T> call(op, LossScratch<T>(binding.workspace(), op.x.shape), binding);
    call.args.dx = binding.write(op.dx).template as<T>();
    return make_step([call, scale = op.scale] { call.run(scale * call.factor()); });
  });
}

}  // namespace

KernelTable weighted_xent_kernels() {
  Kernel loss;
  loss.name = "cpu.weighted_xent.simd";
  loss.covers = covers_weighted_xent<SoftmaxXent>;
  loss.prepare = prepare_weighted_loss;
  Kernel grad;
  grad.name = "cpu.weighted_xent_grad.simd";
  grad.covers = covers_weighted_xent<SoftmaxXentGrad>;
  grad.prepare = prepare_weighted_grad;
  return computing_in(kFloatAndDouble, {loss, grad});
}

}  // namespace ridgeline::cpu::simd
