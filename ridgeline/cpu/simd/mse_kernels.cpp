#include "ridgeline/cpu/simd/kernel.h"
#include "ridgeline/cpu/simd/mse.h"

namespace ridgeline::cpu::simd {
namespace {

template <typename T>
struct MseScratch {
  MseScratch(std::byte* base, int64_t n) {
    Scratch scratch(base);
    loss = scratch.take<double>(size_t(groups_of<T>(n)));
    correct = scratch.take<int32_t>(size_t(groups_of<T>(n)));
    bytes = scratch.bytes();
  }
  double* loss;
  int32_t* correct;
  size_t bytes;
};

// Targets are numbers of x's own type, or labels.
template <typename Op>
std::string refuses_target(const Rest& rest) {
  const std::string reason = refuses(rest, &Op::x);
  if (!reason.empty()) return reason;
  const auto& op = *rest.get<Op>(0);
  if (op.target.dtype != DType::int32 && op.target.dtype != op.x.dtype) {
    return "takes targets of x's type or labels only";
  }
  return {};
}

// The arguments that both ops share.
template <typename T, typename Op>
MseArgs<T> arguments(const Op& op, const Binding& binding) {
  MseArgs<T> args{};
  args.x = binding.read(op.x).template as<T>();
  const Tensor target = binding.read(op.target);
  if (op.target.dtype == DType::int32) {
    args.label = target.as<int32_t>();
  } else {
    args.target = target.as<T>();
  }
  args.n = op.x.shape[0];
  args.out = op.x.shape[1];
  return args;
}

template <typename T>
void run(const MseArgs<T>& args, ThreadPool& pool) {
  const int64_t least = kLeastElements / (kGroup<T> * args.out) + 1;
  pool.share(groups_of<T>(args.n), 1, least,
             [&](Range groups) { mse_functions<T>().run(args, groups); });
}

Cover covers_mse(const Rest& rest) {
  const std::string reason = refuses_target<Mse>(rest);
  if (!reason.empty()) return Cover::no(reason);
  const auto& op = *rest.get<Mse>(0);
  Cover cover = Cover::of(1);
  cover.workspace = with_type(op.x.dtype, [&](auto zero) {
    return MseScratch<decltype(zero)>(nullptr, op.x.shape[0]).bytes;
  });
  return cover;
}

std::unique_ptr<Step> prepare_mse(const Span& span, const Binding& binding) {
  const auto& op = span.get<Mse>(0);
  return with_type(op.x.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    const MseScratch<T> scratch(binding.workspace(), op.x.shape[0]);
    MseArgs<T> args = arguments<T>(op, binding);
    args.loss = scratch.loss;
    auto* correct = binding.write(op.correct).template as<int32_t>();
    if (correct != nullptr && args.label != nullptr) args.correct = scratch.correct;
    return make_step([args, scale = op.scale, correct,
                      tick = binding.read(op.tick).template as<int32_t>(),
                      loss = binding.write(op.loss).template as<double>(),
                      &pool = cpu_runtime(binding.runtime()).pool()] {
      run(args, pool);
      double sum = 0;
      int32_t hits = 0;
      for (int64_t g = 0; g < groups_of<T>(args.n); ++g) {
        sum += args.loss[g];
        if (args.correct != nullptr) hits += args.correct[g];
      }
      loss[*tick] = scale * sum;
      if (correct != nullptr) correct[*tick] = hits;
    });
  });
}

Cover covers_mse_grad(const Rest& rest) {
  std::string reason = refuses_target<MseGrad>(rest);
  if (reason.empty() && rest.get<MseGrad>(0)->loss_scale) reason = "takes no loss scale";
  return reason.empty() ? Cover::of(1) : Cover::no(reason);
}

std::unique_ptr<Step> prepare_mse_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<MseGrad>(0);
  return with_type(op.x.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    MseArgs<T> args = arguments<T>(op, binding);
    args.dx = binding.write(op.dx).template as<T>();
    args.factor = T(2 * op.scale);
    return make_step([args, &pool = cpu_runtime(binding.runtime()).pool()] { run(args, pool); });
  });
}

}  // namespace

KernelTable mse_kernels() {
  Kernel loss;
  loss.name = "cpu.mse.simd";
  loss.covers = covers_mse;
  loss.prepare = prepare_mse;
  Kernel grad;
  grad.name = "cpu.mse_grad.simd";
  grad.covers = covers_mse_grad;
  grad.prepare = prepare_mse_grad;
  return computing_in(kFloatAndDouble, {loss, grad});
}

}  // namespace ridgeline::cpu::simd
