#include "ridgeline/cuda/tile/kernels.h"

#include "ridgeline/cuda/plain/linear_spans.h"
#include "ridgeline/cuda/tile/product.h"
#include "ridgeline/plan/linear_activation.h"

namespace ridgeline::cuda {
namespace {

// Tiles of another shape are often close to the estimate's first choice; the planner measures both.
constexpr int kProposals = 2;

template <typename Op>
Cover cover(const RemainingOps& rest, const Op& op, const Values& values, size_t ops,
            int proposal) {
  std::string reason = refuse_tile_type(values[0].dtype);
  if (reason.empty()) reason = refuse_floats(values);
  if (reason.empty()) reason = refuse_large({op.n(), op.in(), op.out()});
  if (!reason.empty()) return Cover::no(reason);
  const TileMath math = tile_math(rest.program.precision, values[0].dtype);
  return cover_unless({}, ops, tile_choice(math, op, proposal).workspace);
}

Cover covers_linear(const RemainingOps& rest, int proposal) {
  const auto* op = rest.get<Linear>(0);
  if (op == nullptr) return no_such_op(Linear::kName);
  return cover(rest, *op, {op->x, op->w, op->b, op->y}, 1, proposal);
}

Cover covers_linear_activation(const RemainingOps& rest, int proposal) {
  return cover_linear_activation(rest, [&](const Linear& op, const Activation& f) {
    if (!has_activation_fn(f.kind)) return Cover::no(kNoActivationFn);
    return cover(rest, op, {op.x, op.w, op.b, f.y}, 2, proposal);
  });
}

Cover covers_grad_x(const RemainingOps& rest, int proposal) {
  const auto* op = rest.get<LinearGradX>(0);
  if (op == nullptr) return no_such_op(LinearGradX::kName);
  return cover(rest, *op, {op->dy, op->w, op->dx}, 1, proposal);
}

Cover covers_grad_w(const RemainingOps& rest, int proposal) {
  const auto* op = rest.get<LinearGradW>(0);
  if (op == nullptr) return no_such_op(LinearGradW::kName);
  return cover(rest, *op, {op->x, op->dy, op->dw, op->db}, 1, proposal);
}

Cover covers_grad_w_sgd(const RemainingOps& rest, int proposal) {
  return cover_grad_with_updates(rest, [&](const GradWithUpdates& found) {
    return cover(rest, *found.grad, found.values, found.ops, proposal);
  });
}

// A step that launches one of the math's functions: launch(kernels, choice, memory, stream).
template <typename T, typename Op, typename Launch>
std::unique_ptr<Step> product_step(const Span& span, const Binding& binding, const Op& op,
                                   int proposal, Launch launch) {
  const DType dtype = sizeof(T) == 8 ? DType::fp64 : DType::fp32;
  const TileMath math = tile_math(span.program.precision, dtype);
  const TileChoice choice = tile_choice(math, op, proposal);
  const TileCounters counters(binding.runtime(), choice.counters);
  return launch_step(
      binding, describe(span.op(0)),
      [&kernels = tile_kernels<T>(math), choice, counters, launch,
       partial = binding.workspace()](cudaStream_t stream) {
        return launch(kernels, choice, TileMemory{partial, counters.get()}, stream);
      },
      choice.name);
}

template <typename F>
std::unique_ptr<Step> with_float(DType dtype, F f) {
  return dtype == DType::fp64 ? f(double{}) : f(float{});
}

// Prepares a linear op alone, or with the activation that follows it.
std::unique_ptr<Step> prepare_linear(const Span& span, const Binding& binding, int proposal) {
  const auto& op = span.get<Linear>(0);
  return with_float(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    return product_step<T>(
        span, binding, op, proposal,
        [args = linear_args<T>(span, binding)](
            const TileKernels<T>& kernels, const TileChoice& choice, const TileMemory& memory,
            cudaStream_t stream) { return kernels.linear(choice, args, memory, stream); });
  });
}

std::unique_ptr<Step> prepare_grad_x(const Span& span, const Binding& binding, int proposal) {
  const auto& op = span.get<LinearGradX>(0);
  return with_float(op.dx.dtype, [&](auto type) {
    using T = decltype(type);
    const TileGradXArgs<T> args{binding.read(op.dy).as<T>(),
                                binding.read(op.w).as<T>(),
                                binding.write(op.dx).as<T>(),
                                int(op.n()),
                                int(op.in()),
                                int(op.out()),
                                nullptr,
                                ActivationFn::none};
    return product_step<T>(
        span, binding, op, proposal,
        [args](const TileKernels<T>& kernels, const TileChoice& choice, const TileMemory& memory,
               cudaStream_t stream) { return kernels.grad_x(choice, args, memory, stream); });
  });
}

// Prepares the gradients alone, or with the updates that follow them.
std::unique_ptr<Step> prepare_grad_w(const Span& span, const Binding& binding, int proposal) {
  const auto& op = span.get<LinearGradW>(0);
  return with_float(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    TileGradWArgs<T> args{};
    args.product = linear_grad_w_args<T>(span, binding);
    return product_step<T>(
        span, binding, op, proposal,
        [args](const TileKernels<T>& kernels, const TileChoice& choice, const TileMemory& memory,
               cudaStream_t stream) { return kernels.grad_w(choice, args, memory, stream); });
  });
}

}  // namespace

KernelTable tile_kernels() {
  struct Family {
    const char* name;
    Cover (*covers)(const RemainingOps&, int proposal);
    std::unique_ptr<Step> (*prepare)(const Span&, const Binding&, int proposal);
  };
  const Family families[] = {
      {"linear_activation", covers_linear_activation, prepare_linear},
      {"linear", covers_linear, prepare_linear},
      {"linear_grad_x", covers_grad_x, prepare_grad_x},
      {"linear_grad_w_sgd", covers_grad_w_sgd, prepare_grad_w},
      {"linear_grad_w", covers_grad_w, prepare_grad_w},
  };
  KernelTable table;
  for (const Family& family : families) {
    for (int proposal = 0; proposal < kProposals; ++proposal) {
      table.push_back(cuda_kernel(fmt::format("cuda.{}.tile.{}", family.name, proposal),
                                  family.covers, family.prepare, proposal, kTiles));
    }
  }
  return table;
}

}  // namespace ridgeline::cuda
