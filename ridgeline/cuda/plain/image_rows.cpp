// Pools and normalisations.
#include "ridgeline/cuda/norm/batch_cluster.h"
#include "ridgeline/cuda/norm/layer_cluster.h"
#include "ridgeline/cuda/plain/geometry.h"
#include "ridgeline/cuda/plain/loose_bind.h"
#include "ridgeline/cuda/plain/norm.h"
#include "ridgeline/cuda/plain/pool.h"
#include "ridgeline/cuda/plain/rows.h"
#include "ridgeline/cuda/row.h"

namespace ridgeline::cuda {
namespace {

std::string refuse_pool(const PoolShape& shape, int64_t n, const Values& values) {
  std::string reason = refuse_floats(values);
  if (reason.empty()) reason = refuse_large({n, shape.in.numel(), shape.out().numel()});
  return reason;
}

Cover covers_max_pool(const Rest& rest) {
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

Cover covers_max_pool_grad(const Rest& rest) {
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

// Windows of 2 x 2 that do not overlap.
bool quads(const PoolShape& shape) {
  const Slide two{2, 2, 0, 1};
  return shape.window == Window{two, two};
}

Cover covers_activation_pool(const Rest& rest) {
  const auto* activation = rest.get<Activation>(0);
  const auto* pool = rest.get<MaxPool>(1);
  if (activation == nullptr || pool == nullptr || pool->x.id != activation->y.id) {
    return Cover::no("the next ops are no activation and its pool");
  }
  if (!quads(pool->shape)) return Cover::no("takes windows of 2 x 2 with stride 2");
  return cover_unless(refuse_pool(pool->shape, pool->n(), {activation->x, activation->y, pool->y}),
                      2);
}

std::unique_ptr<Step> prepare_activation_pool(const Span& span, const Binding& binding) {
  const auto& activation = span.get<Activation>(0);
  const auto& pool = span.get<MaxPool>(1);
  return dispatch_device_float(pool.y.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(
        binding, describe(span.op(1)),
        [g = geometry_of(pool.shape, pool.n()), curve = curve_of(activation.kind),
         z = binding.read(activation.x).as<T>(), a = binding.write(activation.y).as<T>(),
         y = binding.write(pool.y).as<T>()](cudaStream_t stream) {
          return launch_activation_pool<T>(g, curve, z, a, y, stream);
        });
  });
}

Cover covers_pool_activation_grad(const Rest& rest) {
  const auto* pool = rest.get<MaxPoolGrad>(0);
  const auto* activation = rest.get<ActivationGrad>(1);
  if (pool == nullptr || activation == nullptr || activation->dy.id != pool->dx.id ||
      activation->saved.id != pool->x.id) {
    return Cover::no("the next ops are no gradients of a pool and the activation it pools");
  }
  if (!quads(pool->shape)) return Cover::no("takes windows of 2 x 2 with stride 2");
  if (!rest.dead_after(pool->dx, 2)) return Cover::no("the pool's gradient is needed later");
  Cover cover =
      cover_unless(refuse_pool(pool->shape, pool->n(), {pool->x, pool->dy, activation->dx}), 2);
  if (cover.ops > 0) cover.skips = {pool->dx.id};
  return cover;
}

std::unique_ptr<Step> prepare_pool_activation_grad(const Span& span, const Binding& binding) {
  const auto& pool = span.get<MaxPoolGrad>(0);
  const auto& activation = span.get<ActivationGrad>(1);
  return dispatch_device_float(pool.dy.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(binding, describe(span.op(0)),
                       [g = geometry_of(pool.shape, pool.n()), curve = curve_of(activation.kind),
                        a = binding.read(pool.x).as<T>(), dy = binding.read(pool.dy).as<T>(),
                        dz = binding.write(activation.dx).as<T>()](cudaStream_t stream) {
                         return launch_pool_activation_grad<T>(g, curve, a, dy, dz, stream);
                       });
  });
}

Cover covers_avg_pool(const Rest& rest) {
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

Cover covers_avg_pool_grad(const Rest& rest) {
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

// Statistics are fp64 beside fp64 values and fp32 beside all narrower ones.
std::string refuse_norm(const Values& values, const Values& statistics,
                        std::initializer_list<int64_t> extents) {
  std::string reason = refuse_floats(values);
  const DType wanted = values[0].dtype == DType::fp64 ? DType::fp64 : DType::fp32;
  for (const Value& value : statistics) {
    if (value && value.dtype != wanted) reason = "takes statistics in the accumulating type only";
  }
  if (reason.empty()) reason = refuse_large(extents);
  return reason;
}

// Why clusters cannot take the rows of x; "" when they can, or nobody asked.
std::string refuse_rows(bool clusters, const Value& x, int64_t rows, int64_t width) {
  return clusters ? refuse_layer_cluster(rows, width, size_of(x.dtype)) : "";
}

Cover covers_layer_norm(const Rest& rest, bool clusters) {
  const auto* op = rest.get<LayerNorm>(0);
  if (op == nullptr) return no_such_op(LayerNorm::kName);
  std::string reason = refuse_norm(
      {op->x, unless_loose(op->gamma, op->x.dtype), unless_loose(op->beta, op->x.dtype), op->y},
      {op->mean, op->rstd}, {op->rows(), op->width});
  if (reason.empty()) reason = refuse_rows(clusters, op->x, op->rows(), op->width);
  return cover_unless(reason, 1);
}

std::unique_ptr<Step> prepare_layer_norm(const Span& span, const Binding& binding, bool clusters) {
  const auto& op = span.get<LayerNorm>(0);
  return dispatch_device_float(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    using A = Accumulated<T>;
    const LayerNormArgs<T> args{binding.read(op.x).as<T>(),
                                loose_read<T>(binding, op.gamma, op.x.dtype),
                                loose_read<T>(binding, op.beta, op.x.dtype),
                                binding.write(op.y).as<T>(),
                                binding.write(op.mean).as<A>(),
                                binding.write(op.rstd).as<A>(),
                                op.rows(),
                                int(op.width),
                                op.epsilon};
    const auto launch = clusters ? launch_layer_norm_cluster<T> : launch_layer_norm<T>;
    return launch_step(binding, describe(span.op(0)),
                       [args, launch](cudaStream_t stream) { return launch(args, stream); });
  });
}

Cover covers_layer_norm_grad(const Rest& rest, bool clusters) {
  const auto* op = rest.get<LayerNormGrad>(0);
  if (op == nullptr) return no_such_op(LayerNormGrad::kName);
  std::string reason =
      refuse_norm({op->x, unless_loose(op->gamma, op->x.dtype), op->dy, op->dx,
                   unless_loose(op->dgamma, op->x.dtype), unless_loose(op->dbeta, op->x.dtype)},
                  {op->mean, op->rstd}, {op->rows(), op->width});
  if (reason.empty()) reason = refuse_rows(clusters, op->x, op->rows(), op->width);
  return cover_unless(reason, 1);
}

std::unique_ptr<Step> prepare_layer_norm_grad(const Span& span, const Binding& binding,
                                              bool clusters) {
  const auto& op = span.get<LayerNormGrad>(0);
  return dispatch_device_float(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    using A = Accumulated<T>;
    const LayerNormGradArgs<T> args{binding.read(op.x).as<T>(),
                                    binding.read(op.dy).as<T>(),
                                    loose_read<T>(binding, op.gamma, op.x.dtype),
                                    binding.read(op.mean).as<A>(),
                                    binding.read(op.rstd).as<A>(),
                                    binding.write(op.dx).as<T>(),
                                    loose_write<T>(binding, op.dgamma, op.x.dtype),
                                    loose_write<T>(binding, op.dbeta, op.x.dtype),
                                    op.rows(),
                                    int(op.width)};
    const auto launch = clusters ? launch_layer_norm_grad_cluster<T> : launch_layer_norm_grad<T>;
    return launch_step(binding, describe(span.op(0)),
                       [args, launch](cudaStream_t stream) { return launch(args, stream); });
  });
}

// Rows of clusters: `plain` where that is false.
Cover needs_clusters(const Rest& rest, bool clusters, Cover cover) {
  if (clusters && cuda_runtime(rest.runtime).architecture() < 90) {
    return Cover::no("clusters need compute capability 9.0 or later");
  }
  return cover;
}

Cover covers_batch_norm(const Rest& rest) {
  const auto* op = rest.get<BatchNorm>(0);
  if (op == nullptr) return no_such_op(BatchNorm::kName);
  return cover_unless(refuse_norm({op->x, unless_loose(op->gamma, op->x.dtype),
                                   unless_loose(op->beta, op->x.dtype), op->y},
                                  {op->mean, op->rstd, op->running_mean, op->running_var},
                                  {op->n(), op->in.c, op->in.pixels()}),
                      1);
}

std::unique_ptr<Step> prepare_batch_norm(const Span& span, const Binding& binding, bool clusters) {
  const auto& op = span.get<BatchNorm>(0);
  return dispatch_device_float(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    using A = Accumulated<T>;
    const BatchNormArgs<T> args{binding.read(op.x).as<T>(),
                                loose_read<T>(binding, op.gamma, op.x.dtype),
                                loose_read<T>(binding, op.beta, op.x.dtype),
                                binding.write(op.y).as<T>(),
                                binding.write(op.mean).as<A>(),
                                binding.write(op.rstd).as<A>(),
                                binding.write(op.running_mean).as<A>(),
                                binding.write(op.running_var).as<A>(),
                                binding.write(op.batches).as<int64_t>(),
                                int(op.n()),
                                int(op.in.c),
                                int(op.in.pixels()),
                                op.epsilon,
                                op.momentum};
    const auto launch = clusters ? launch_batch_norm_cluster<T> : launch_batch_norm<T>;
    return launch_step(binding, describe(span.op(0)),
                       [args, launch](cudaStream_t stream) { return launch(args, stream); });
  });
}

Cover covers_batch_norm_grad(const Rest& rest) {
  const auto* op = rest.get<BatchNormGrad>(0);
  if (op == nullptr) return no_such_op(BatchNormGrad::kName);
  return cover_unless(
      refuse_norm({op->x, unless_loose(op->gamma, op->x.dtype), op->dy, op->dx,
                   unless_loose(op->dgamma, op->x.dtype), unless_loose(op->dbeta, op->x.dtype)},
                  {op->mean, op->rstd}, {op->n(), op->in.c, op->in.pixels()}),
      1);
}

std::unique_ptr<Step> prepare_batch_norm_grad(const Span& span, const Binding& binding,
                                              bool clusters) {
  const auto& op = span.get<BatchNormGrad>(0);
  return dispatch_device_float(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    using A = Accumulated<T>;
    const BatchNormGradArgs<T> args{binding.read(op.x).as<T>(),
                                    binding.read(op.dy).as<T>(),
                                    loose_read<T>(binding, op.gamma, op.x.dtype),
                                    binding.read(op.mean).as<A>(),
                                    binding.read(op.rstd).as<A>(),
                                    binding.write(op.dx).as<T>(),
                                    loose_write<T>(binding, op.dgamma, op.x.dtype),
                                    loose_write<T>(binding, op.dbeta, op.x.dtype),
                                    int(op.n()),
                                    int(op.in.c),
                                    int(op.in.pixels())};
    const auto launch = clusters ? launch_batch_norm_grad_cluster<T> : launch_batch_norm_grad<T>;
    return launch_step(binding, describe(span.op(0)),
                       [args, launch](cudaStream_t stream) { return launch(args, stream); });
  });
}

Cover covers_batch_norm_infer(const Rest& rest) {
  const auto* op = rest.get<BatchNormInfer>(0);
  if (op == nullptr) return no_such_op(BatchNormInfer::kName);
  return cover_unless(refuse_norm({op->x, unless_loose(op->gamma, op->x.dtype),
                                   unless_loose(op->beta, op->x.dtype), op->y},
                                  {op->mean, op->var}, {op->n(), op->in.c, op->in.pixels()}),
                      1);
}

std::unique_ptr<Step> prepare_batch_norm_infer(const Span& span, const Binding& binding) {
  const auto& op = span.get<BatchNormInfer>(0);
  return dispatch_device_float(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    using A = Accumulated<T>;
    const BatchNormInferArgs<T> args{binding.read(op.x).as<T>(),
                                     loose_read<T>(binding, op.gamma, op.x.dtype),
                                     loose_read<T>(binding, op.beta, op.x.dtype),
                                     binding.read(op.mean).as<A>(),
                                     binding.read(op.var).as<A>(),
                                     binding.write(op.y).as<T>(),
                                     int(op.n()),
                                     int(op.in.c),
                                     int(op.in.pixels()),
                                     op.epsilon};
    return launch_step(binding, describe(span.op(0)), [args](cudaStream_t stream) {
      return launch_batch_norm_infer<T>(args, stream);
    });
  });
}

}  // namespace

Table plain_image_rows() {
  Table table{
      cuda_row("cuda.activation_pool.plain", covers_activation_pool, prepare_activation_pool),
      cuda_row("cuda.pool_activation_grad.plain", covers_pool_activation_grad,
               prepare_pool_activation_grad),
      cuda_row("cuda.max_pool.plain", covers_max_pool, prepare_max_pool),
      cuda_row("cuda.max_pool_grad.plain", covers_max_pool_grad, prepare_max_pool_grad),
      cuda_row("cuda.avg_pool.plain", covers_avg_pool, prepare_avg_pool),
      cuda_row("cuda.avg_pool_grad.plain", covers_avg_pool_grad, prepare_avg_pool_grad)};
  for (const bool clusters : {true, false}) {
    const char* how = clusters ? "cluster" : "plain";
    table.push_back(cuda_row(
        fmt::format("cuda.layer_norm.{}", how),
        [clusters](const Rest& rest) {
          return needs_clusters(rest, clusters, covers_layer_norm(rest, clusters));
        },
        [clusters](const Span& span, const Binding& binding) {
          return prepare_layer_norm(span, binding, clusters);
        }));
    table.push_back(cuda_row(
        fmt::format("cuda.layer_norm_grad.{}", how),
        [clusters](const Rest& rest) {
          return needs_clusters(rest, clusters, covers_layer_norm_grad(rest, clusters));
        },
        [clusters](const Span& span, const Binding& binding) {
          return prepare_layer_norm_grad(span, binding, clusters);
        }));
    table.push_back(cuda_row(
        fmt::format("cuda.batch_norm.{}", how),
        [clusters](const Rest& rest) {
          return needs_clusters(rest, clusters, covers_batch_norm(rest));
        },
        [clusters](const Span& span, const Binding& binding) {
          return prepare_batch_norm(span, binding, clusters);
        }));
    table.push_back(cuda_row(
        fmt::format("cuda.batch_norm_grad.{}", how),
        [clusters](const Rest& rest) {
          return needs_clusters(rest, clusters, covers_batch_norm_grad(rest));
        },
        [clusters](const Span& span, const Binding& binding) {
          return prepare_batch_norm_grad(span, binding, clusters);
        }));
  }
  table.push_back(
      cuda_row("cuda.batch_norm_infer.plain", covers_batch_norm_infer, prepare_batch_norm_infer));
  return table;
}

}  // namespace ridgeline::cuda
