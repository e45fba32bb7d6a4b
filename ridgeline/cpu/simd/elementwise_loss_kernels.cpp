#include "ridgeline/cpu/simd/elementwise_loss.h"
#include "ridgeline/cpu/simd/kernel.h"
#include "ridgeline/cpu/simd/loss_step.h"

namespace ridgeline::cpu::simd {
namespace {

template <typename Op>
constexpr bool kSquaredError = std::is_same_v<Op, Mse> || std::is_same_v<Op, MseGrad>;

template <typename Op>
Cover covers_elementwise_loss(const RemainingOps& rest) {
  const std::string reason = refuses(rest, &Op::x);
  if (!reason.empty()) return Cover::no(reason);
  const auto& op = *rest.get<Op>(0);
  if (op.target.dtype != DType::int32 && op.target.dtype != op.x.dtype) {
    return Cover::no("takes targets of x's type or labels only");
  }
  return cover_loss(op);
}

// The arguments of a loss and of its gradient, with the weights that each run reads from the
// program.
template <typename T>
struct LossCall {
  template <typename Op>
  LossCall(const Op& op, const LossScratch<T>& scratch, const Binding& binding)
      : columns(scratch.weights), pool(cpu_runtime(binding.runtime()).pool()) {
    const bool labels = op.target.dtype == DType::int32;
    const Tensor target = binding.read(op.target);
    args.x = binding.read(op.x).template as<T>();
    args.label = labels ? target.as<int32_t>() : nullptr;
    args.target = labels ? nullptr : target.as<T>();
    args.n = op.x.shape[0];
    args.out = op.x.shape[1];
    args.columns = labels ? args.out : op.target.shape[1];
    if constexpr (kSquaredError<Op>) {
      args.fn = ElementFn::squared_error;
    } else {
      args.fn = element_fn(op.fn);
      args.sample_weights = binding.read(op.sample_weights).template as<T>();
      if (op.sample_weights) args.timesteps = args.n / op.sample_weights.shape.numel();
      args.delta = T(op.delta);
      args.weights = scratch.weights;
      weights = binding.read(op.weights).template as<double>();
      weight_count = op.weights ? op.weights.shape.numel() : 1;
    }
  }

  void run() const {
    if (args.weights != nullptr) {
      for (int64_t c = 0; c < args.out; ++c) {
        columns[c] = weights != nullptr ? T(weights[c % weight_count]) : T(1);
      }
    }
    const int64_t least = kLeastElements / (kGroup<T> * args.out) + 1;
    pool.share(groups_of<T>(args.n), 1, least,
               [&](Range groups) { elementwise_loss_functions<T>().run(args, groups); });
  }
  double factor() const { return 1; }

  ElementwiseLossArgs<T> args{};
  const double* weights = nullptr;
  int64_t weight_count = 1;
  T* columns;
  ThreadPool& pool;
};

template <typename Op>
std::unique_ptr<Step> prepare_loss(const Span& span, const Binding& binding) {
  const auto& op = span.get<Op>(0);
  return with_type(op.x.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    const LossScratch<T> scratch(binding.workspace(), op.x.shape);
    const LossCall<T> call(op, scratch, binding);
    return make_loss_step(call, op, scratch, call.args.label != nullptr, binding);
  });
}

template <typename Op>
std::unique_ptr<Step> prepare_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<Op>(0);
  return with_type(op.x.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    LossCall<T> call(op, LossScratch<T>(binding.workspace(), op.x.shape), binding);
    call.args.dx = binding.write(op.dx).template as<T>();
    call.args.factor = T(op.scale);
    return make_step([call] { call.run(); });
  });
}

template <typename Op>
Kernel loss_kernel(const char* name,
                   std::unique_ptr<Step> (*prepare)(const Span&, const Binding&)) {
  Kernel kernel;
  kernel.name = name;
  kernel.covers = covers_elementwise_loss<Op>;
  kernel.prepare = prepare;
  return kernel;
}

}  // namespace

KernelTable elementwise_loss_kernels() {
  return computing_in(
      kFloatAndDouble,
      {loss_kernel<Mse>("cpu.mse.simd", prepare_loss<Mse>),
       loss_kernel<MseGrad>("cpu.mse_grad.simd", prepare_grad<MseGrad>),
       loss_kernel<ElementwiseLoss>("cpu.elementwise_loss.simd", prepare_loss<ElementwiseLoss>),
       loss_kernel<ElementwiseLossGrad>("cpu.elementwise_loss_grad.simd",
                                        prepare_grad<ElementwiseLossGrad>)});
}

}  // namespace ridgeline::cpu::simd
