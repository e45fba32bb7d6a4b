#include "ridgeline/cpu/simd/elementwise_loss.h"
#include "ridgeline/cpu/simd/kernel.h"

namespace ridgeline::cpu::simd {
namespace {

template <typename T>
struct LossScratch {
  LossScratch(std::byte* base, const Shape& x) {
    Scratch scratch(base);
    weights = scratch.take<T>(size_t(x[1]));
    loss = scratch.take<double>(size_t(groups_of<T>(x[0])));
    correct = scratch.take<int32_t>(size_t(groups_of<T>(x[0])));
    bytes = scratch.bytes();
  }
  T* weights;  // of the columns, in the type of x
  double* loss;
  int32_t* correct;
  size_t bytes;
};

template <typename Op>
Cover covers_elementwise_loss(const Rest& rest) {
  const std::string reason = refuses(rest, &Op::x);
  if (!reason.empty()) return Cover::no(reason);
  const auto& op = *rest.get<Op>(0);
  if (op.target.dtype != DType::int32 && op.target.dtype != op.x.dtype) {
    return Cover::no("takes targets of x's type or labels only");
  }
  Cover cover = Cover::of(1);
  cover.workspace = with_type(op.x.dtype, [&](auto zero) {
    return LossScratch<decltype(zero)>(nullptr, op.x.shape).bytes;
  });
  return cover;
}

// The arguments of both ops, with the weights that each run reads from the program.
template <typename T>
struct LossCall {
  template <typename Op>
  LossCall(const Op& op, const LossScratch<T>& scratch, const Binding& binding)
      : weights(binding.read(op.weights).template as<double>()),
        weight_count(op.weights ? op.weights.shape.numel() : 1),
        columns(scratch.weights),
        pool(cpu_runtime(binding.runtime()).pool()) {
    const bool labels = op.target.dtype == DType::int32;
    const Tensor target = binding.read(op.target);
    args.fn = op.fn;
    args.x = binding.read(op.x).template as<T>();
    args.label = labels ? target.as<int32_t>() : nullptr;
    args.target = labels ? nullptr : target.as<T>();
    args.weights = scratch.weights;
    args.n = op.x.shape[0];
    args.out = op.x.shape[1];
    args.columns = labels ? args.out : op.target.shape[1];
    args.delta = T(op.delta);
  }

  void run() const {
    for (int64_t c = 0; c < args.out; ++c) {
      columns[c] = weights != nullptr ? T(weights[c % weight_count]) : T(1);
    }
    const int64_t least = kLeastElements / (kGroup<T> * args.out) + 1;
    pool.share(groups_of<T>(args.n), 1, least,
               [&](Range groups) { elementwise_loss_functions<T>().run(args, groups); });
  }

  ElementwiseLossArgs<T> args{};
  const double* weights;
  int64_t weight_count;
  T* columns;
  ThreadPool& pool;
};

std::unique_ptr<Step> prepare_loss(const Span& span, const Binding& binding) {
  const auto& op = span.get<ElementwiseLoss>(0);
  return with_type(op.x.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    const LossScratch<T> scratch(binding.workspace(), op.x.shape);
    LossCall<T> call(op, scratch, binding);
    call.args.loss = scratch.loss;
    auto* correct = binding.write(op.correct).template as<int32_t>();
    if (correct != nullptr && call.args.label != nullptr) call.args.correct = scratch.correct;
    return make_step([call, scale = op.scale, correct,
                      tick = binding.read(op.tick).template as<int32_t>(),
                      loss = binding.write(op.loss).template as<double>()] {
      call.run();
      double sum = 0;
      int32_t hits = 0;
      for (int64_t g = 0; g < groups_of<T>(call.args.n); ++g) {
        sum += call.args.loss[g];
        if (call.args.correct != nullptr) hits += call.args.correct[g];
      }
      loss[*tick] = scale * sum;
      if (correct != nullptr) correct[*tick] = hits;
    });
  });
}

Cover covers_grad(const Rest& rest) {
  const auto* op = rest.get<ElementwiseLossGrad>(0);
  if (op != nullptr && op->loss_scale) return Cover::no("takes no loss scale");
  return covers_elementwise_loss<ElementwiseLossGrad>(rest);
}

std::unique_ptr<Step> prepare_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<ElementwiseLossGrad>(0);
  return with_type(op.x.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    LossCall<T> call(op, LossScratch<T>(binding.workspace(), op.x.shape), binding);
    call.args.dx = binding.write(op.dx).template as<T>();
    call.args.factor = T(op.scale);
    return make_step([call] { call.run(); });
  });
}

}  // namespace

KernelTable elementwise_loss_kernels() {
  Kernel loss;
  loss.name = "cpu.elementwise_loss.simd";
  loss.covers = covers_elementwise_loss<ElementwiseLoss>;
  loss.prepare = prepare_loss;
  Kernel grad;
  grad.name = "cpu.elementwise_loss_grad.simd";
  grad.covers = covers_grad;
  grad.prepare = prepare_grad;
  return computing_in(kFloatAndDouble, {loss, grad});
}

}  // namespace ridgeline::cpu::simd
