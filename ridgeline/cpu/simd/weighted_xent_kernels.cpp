#include "ridgeline/cpu/simd/kernel.h"
#include "ridgeline/cpu/simd/weighted_xent.h"

namespace ridgeline::cpu::simd {
namespace {

template <typename T>
struct XentScratch {
  XentScratch(std::byte* base, const Shape& x) {
    Scratch scratch(base);
    weights = scratch.take<T>(size_t(x[1]));
    loss = scratch.take<double>(size_t(groups_of<T>(x[0])));
    correct = scratch.take<int32_t>(size_t(groups_of<T>(x[0])));
    bytes = scratch.bytes();
  }
  T* weights;  // in the type of x
  double* loss;
  int32_t* correct;
  size_t bytes;
};

template <typename Op>
Cover covers_weighted_xent(const Rest& rest) {
  const std::string reason = refuses(rest, &Op::x);
  if (!reason.empty()) return Cover::no(reason);
  const auto& op = *rest.get<Op>(0);
  if (op.one_hot()) return Cover::no("takes class weights or label smoothing");
  Cover cover = Cover::of(1);
  cover.workspace = with_type(op.x.dtype, [&](auto zero) {
    return XentScratch<decltype(zero)>(nullptr, op.x.shape).bytes;
  });
  return cover;
}

// The arguments of both ops, with the weights that each run reads from the program.
template <typename T>
struct XentCall {
  template <typename Op>
  XentCall(const Op& op, const XentScratch<T>& scratch, const Binding& binding)
      : weights(binding.read(op.weights).template as<double>()),
        copies(scratch.weights),
        pool(cpu_runtime(binding.runtime()).pool()) {
    args.x = binding.read(op.x).template as<T>();
    args.label = binding.read(op.label).template as<int32_t>();
    args.weights = scratch.weights;
    args.n = op.x.shape[0];
    args.classes = op.x.shape[1];
    args.smoothing = T(op.smoothing);
  }

  // n / sum_r w[label[r]], which makes a weighted mean of the rows.
  double row_factor() const {
    if (weights == nullptr) return 1;
    double sum = 0;
    for (int64_t r = 0; r < args.n; ++r) sum += weights[args.label[r]];
    return double(args.n) / sum;
  }

  // The gradient is multiplied by `scale`.
  void run(double scale) const {
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
    const XentScratch<T> scratch(binding.workspace(), op.x.shape);
    XentCall<T> call(op, scratch, binding);
    call.args.loss = scratch.loss;
    auto* correct = binding.write(op.correct).template as<int32_t>();
    if (correct != nullptr) call.args.correct = scratch.correct;
    return make_step([call, scale = op.scale, correct,
                      tick = binding.read(op.tick).template as<int32_t>(),
                      loss = binding.write(op.loss).template as<double>()] {
      call.run(1);
      double sum = 0;
      int32_t hits = 0;
      for (int64_t g = 0; g < groups_of<T>(call.args.n); ++g) {
        sum += call.args.loss[g];
        if (call.args.correct != nullptr) hits += call.args.correct[g];
      }
      loss[*tick] = scale * call.row_factor() * sum;
      if (correct != nullptr) correct[*tick] = hits;
    });
  });
}

Cover covers_weighted_grad(const Rest& rest) {
  const auto* op = rest.get<SoftmaxXentGrad>(0);
  if (op != nullptr && op->loss_scale) return Cover::no("takes no loss scale");
  return covers_weighted_xent<SoftmaxXentGrad>(rest);
}

std::unique_ptr<Step> prepare_weighted_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<SoftmaxXentGrad>(0);
  return with_type(op.x.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    XentCall<T> call(op, XentScratch<T>(binding.workspace(), op.x.shape), binding);
    call.args.dx = binding.write(op.dx).template as<T>();
    return make_step([call, scale = op.scale] { call.run(scale * call.row_factor()); });
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
  grad.covers = covers_weighted_grad;
  grad.prepare = prepare_weighted_grad;
  return computing_in(kFloatAndDouble, {loss, grad});
}

}  // namespace ridgeline::cpu::simd
