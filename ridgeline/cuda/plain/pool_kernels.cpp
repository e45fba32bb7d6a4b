#include "ridgeline/cuda/plain/geometry.h"
#include "ridgeline/cuda/plain/kernels.h"
#include "ridgeline/cuda/plain/pool.h"
#include "ridgeline/cuda/pool_spans.h"

namespace ridgeline::cuda {
namespace {

std::string refuse_pool(const PoolShape& shape, int64_t n, const Values& values) {
  std::string reason = refuse_floats(values);
  if (reason.empty()) reason = refuse_large({n, shape.in.numel(), shape.out().numel()});
  return reason;
}

Cover covers_max_pool(const RemainingOps& rest) {
  const auto* op = rest.get<MaxPool>(0);
  if (op == nullptr) return no_such_op(MaxPool::kName);
  return cover_unless(refuse_pool(op->shape, op->n(), {op->x, op->y}), 1);
}

std::unique_ptr<Step> prepare_max_pool(const Span& span, const Binding& binding) {
  const auto& op = span.get<MaxPool>(0);
  return dispatch_device_float(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(binding, describe(span.op(0)),
                       [g = geometry_of(op.shape, op.n()), x = binding.read(op.x).as<T>(),
                        y = binding.write(op.y).as<T>()](cudaStream_t stream) {
                         return launch_max_pool<T>(g, x, y, stream);
                       });
  });
}

Cover covers_max_pool_grad(const RemainingOps& rest) {
  const auto* op = rest.get<MaxPoolGrad>(0);
  if (op == nullptr) return no_such_op(MaxPoolGrad::kName);
  return cover_unless(refuse_pool(op->shape, op->n(), {op->x, op->y, op->dy, op->dx}), 1);
}

std::unique_ptr<Step> prepare_max_pool_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<MaxPoolGrad>(0);
  return dispatch_device_float(op.dx.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(
        binding, describe(span.op(0)),
        [g = geometry_of(op.shape, op.n()), x = binding.read(op.x).as<T>(),
         dy = binding.read(op.dy).as<T>(), dx = binding.write(op.dx).as<T>()](cudaStream_t stream) {
          return launch_max_pool_grad<T>(g, x, dy, dx, stream);
        });
  });
}

Cover covers_activation_pool(const RemainingOps& rest) {
  return cover_activation_pool(rest, [](const Activation& activation, const MaxPool& pool) {
    if (!quads(pool.shape)) return std::string("takes windows of 2 x 2 with stride 2");
    return refuse_pool(pool.shape, pool.n(), {activation.x, activation.y, pool.y});
  });
}

std::unique_ptr<Step> prepare_activation_pool(const Span& span, const Binding& binding) {
  const auto& activation = span.get<Activation>(0);
  const auto& pool = span.get<MaxPool>(1);
  return dispatch_device_float(pool.y.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(
        binding, describe(span.op(1)),
        [g = geometry_of(pool.shape, pool.n()), fn = activation_of(activation.kind),
         z = binding.read(activation.x).as<T>(), a = binding.write(activation.y).as<T>(),
         y = binding.write(pool.y).as<T>()](cudaStream_t stream) {
          return launch_activation_pool<T>(g, fn, z, a, y, stream);
        });
  });
}

Cover covers_pool_activation_grad(const RemainingOps& rest) {
  return cover_pool_activation_grad(
      rest, [](const MaxPoolGrad& pool, const ActivationGrad& activation) {
        if (!quads(pool.shape)) return std::string("takes windows of 2 x 2 with stride 2");
        return refuse_pool(pool.shape, pool.n(), {pool.x, pool.dy, activation.dx});
      });
}

std::unique_ptr<Step> prepare_pool_activation_grad(const Span& span, const Binding& binding) {
  const auto& pool = span.get<MaxPoolGrad>(0);
  const auto& activation = span.get<ActivationGrad>(1);
  return dispatch_device_float(pool.dy.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(binding, describe(span.op(0)),
                       [g = geometry_of(pool.shape, pool.n()), fn = activation_of(activation.kind),
                        a = binding.read(pool.x).as<T>(), dy = binding.read(pool.dy).as<T>(),
                        dz = binding.write(activation.dx).as<T>()](cudaStream_t stream) {
                         return launch_pool_activation_grad<T>(g, fn, a, dy, dz, stream);
                       });
  });
}

Cover covers_avg_pool(const RemainingOps& rest) {
  const auto* op = rest.get<AvgPool>(0);
  if (op == nullptr) return no_such_op(AvgPool::kName);
  return cover_unless(refuse_pool(op->shape, op->n(), {op->x, op->y}), 1);
}

std::unique_ptr<Step> prepare_avg_pool(const Span& span, const Binding& binding) {
  const auto& op = span.get<AvgPool>(0);
  return dispatch_device_float(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(
        binding, describe(span.op(0)),
        [g = geometry_of(op.shape, op.n()), by_window = op.count == PoolCount::window,
         x = binding.read(op.x).as<T>(), y = binding.write(op.y).as<T>()](cudaStream_t stream) {
          return launch_avg_pool<T>(g, by_window, x, y, stream);
        });
  });
}

Cover covers_avg_pool_grad(const RemainingOps& rest) {
  const auto* op = rest.get<AvgPoolGrad>(0);
  if (op == nullptr) return no_such_op(AvgPoolGrad::kName);
  return cover_unless(refuse_pool(op->shape, op->n(), {op->dy, op->dx}), 1);
}

std::unique_ptr<Step> prepare_avg_pool_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<AvgPoolGrad>(0);
  return dispatch_device_float(op.dx.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(
        binding, describe(span.op(0)),
        [g = geometry_of(op.shape, op.n()), by_window = op.count == PoolCount::window,
         dy = binding.read(op.dy).as<T>(), dx = binding.write(op.dx).as<T>()](cudaStream_t stream) {
          return launch_avg_pool_grad<T>(g, by_window, dy, dx, stream);
        });
  });
}

}  // namespace

KernelTable plain_pool_kernels() {
  return concurrent(
      {cuda_kernel("cuda.activation_pool.plain", covers_activation_pool, prepare_activation_pool),
       cuda_kernel("cuda.pool_activation_grad.plain", covers_pool_activation_grad,
                   prepare_pool_activation_grad),
       cuda_kernel("cuda.max_pool.plain", covers_max_pool, prepare_max_pool),
       cuda_kernel("cuda.max_pool_grad.plain", covers_max_pool_grad, prepare_max_pool_grad),
       cuda_kernel("cuda.avg_pool.plain", covers_avg_pool, prepare_avg_pool),
       cuda_kernel("cuda.avg_pool_grad.plain", covers_avg_pool_grad, prepare_avg_pool_grad)});
}

}  // namespace ridgeline::cuda
