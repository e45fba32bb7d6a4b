#include "ridgeline/cpu/simd/group_norm.h"
#include "ridgeline/cpu/simd/kernel.h"

namespace ridgeline::cpu::simd {
namespace {

// All operands have x's type, including statistics.
template <typename Op>
Cover covers_group_norm(const RemainingOps& rest) {
  const std::string reason = refuses(rest, &Op::x);
  if (!reason.empty()) return Cover::no(reason);
  const auto& op = *rest.get<Op>(0);
  for (const Values& values : {op.reads(), op.writes()}) {
    for (const Value& value : values) {
      if (value && value.dtype != op.x.dtype) return Cover::no("takes operands of one type");
    }
  }
  return Cover::of(1);
}

// A layer norm is a group norm of one group whose channels are single numbers.
GroupNorm as_group_norm(const GroupNorm& op) { return op; }
GroupNorm as_group_norm(const LayerNorm& op) {
  return {op.x, op.gamma, op.beta, op.y, op.mean, op.rstd, 1, op.width, 1, op.epsilon, true};
}
GroupNormGrad as_group_norm(const GroupNormGrad& op) { return op; }
GroupNormGrad as_group_norm(const LayerNormGrad& op) {
  return {op.x,      op.gamma, op.mean, op.rstd,  op.dy, op.dx,
          op.dgamma, op.dbeta, 1,       op.width, 1,     true};
}

template <typename Op>
std::unique_ptr<Step> prepare_group_norm(const Span& span, const Binding& binding) {
  const GroupNorm op = as_group_norm(span.get<Op>(0));
  return with_type(op.x.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    const GroupNormArgs<T> args{op.runs(),
                                op.groups,
                                op.width,
                                op.spatial,
                                op.centred,
                                binding.read(op.x).as<T>(),
                                binding.read(op.gamma).as<T>(),
                                binding.read(op.beta).as<T>(),
                                binding.write(op.y).as<T>(),
                                binding.write(op.mean).as<T>(),
                                binding.write(op.rstd).as<T>(),
                                op.epsilon};
    return make_step([args, &pool = cpu_runtime(binding.runtime()).pool()] {
      const int64_t least = kLeastElements / args.width + 1;
      pool.share(args.runs, 1, least,
                 [&](Range runs) { group_norm_functions<T>().forward(args, runs); });
    });
  });
}

template <typename Op>
std::unique_ptr<Step> prepare_group_grad(const Span& span, const Binding& binding) {
  const GroupNormGrad op = as_group_norm(span.get<Op>(0));
  return with_type(op.x.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    const GroupNormGradArgs<T> args{op.runs(),
                                    op.groups,
                                    op.width,
                                    op.spatial,
                                    op.centred,
                                    binding.read(op.x).as<T>(),
                                    binding.read(op.gamma).as<T>(),
                                    binding.read(op.mean).as<T>(),
                                    binding.read(op.rstd).as<T>(),
                                    binding.read(op.dy).as<T>(),
                                    binding.write(op.dx).as<T>(),
                                    binding.write(op.dgamma).as<T>(),
                                    binding.write(op.dbeta).as<T>()};
    return make_step([args, &pool = cpu_runtime(binding.runtime()).pool()] {
      const GroupNormFunctions<T>& functions = group_norm_functions<T>();
      // The weights' gradients come first, because dx may alias x or dy.
      if (args.dgamma != nullptr || args.dbeta != nullptr) {
        const int64_t channel = args.runs * args.width / args.channels();
        pool.share(args.channels(), kGroup<T>, kLeastElements / channel + 1,
                   [&](Range channels) { functions.grad_weights(args, channels); });
      }
      if (args.dx == nullptr) return;
      pool.share(args.runs, 1, kLeastElements / args.width + 1,
                 [&](Range runs) { functions.grad(args, runs); });
    });
  });
}

}  // namespace

KernelTable group_norm_kernels() {
  Kernel norm;
  norm.name = "cpu.group_norm.simd";
  norm.covers = covers_group_norm<GroupNorm>;
  norm.prepare = prepare_group_norm<GroupNorm>;
  Kernel grad;
  grad.name = "cpu.group_norm_grad.simd";
  grad.covers = covers_group_norm<GroupNormGrad>;
  grad.prepare = prepare_group_grad<GroupNormGrad>;
  Kernel layer;
  layer.name = "cpu.layer_norm.simd";
  layer.covers = covers_group_norm<LayerNorm>;
  layer.prepare = prepare_group_norm<LayerNorm>;
  Kernel layer_grad;
  layer_grad.name = "cpu.layer_norm_grad.simd";
  layer_grad.covers = covers_group_norm<LayerNormGrad>;
  layer_grad.prepare = prepare_group_grad<LayerNormGrad>;
  return computing_in(kFloatAndDouble, {norm, grad, layer, layer_grad});
}

}  // namespace ridgeline::cpu::simd
