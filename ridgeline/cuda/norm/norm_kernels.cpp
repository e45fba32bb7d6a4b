#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/norm/batch_cluster.h"
#include "ridgeline/cuda/norm/kernels.h"
#include "ridgeline/cuda/norm/layer_cluster.h"
#include "ridgeline/cuda/plain/bind_mixed_operand.h"
#include "ridgeline/cuda/plain/norm.h"

namespace ridgeline::cuda {
namespace {

// Statistics are fp64 if the values are fp64, and fp32 for all narrower values.
std::string refuse_norm(const Values& values, const Values& statistics,
                        std::initializer_list<int64_t> extents) {
  std::string reason = refuse_floats(values);
  const DType wanted = values[0].dtype == DType::fp64 ? DType::fp64 : DType::fp32;
  for (const Value& value : statistics) {
    if (value && value.dtype != wanted) reason = "takes statistics in the accumulator dtype only";
  }
  if (reason.empty()) reason = refuse_large(extents);
  return reason;
}

// Why a cluster kernel refuses a matrix like x with rows of `width` values; "" if it takes it, or
// if the kernel uses no clusters.
std::string refuse_rows(bool clusters, const Value& x, int64_t rows, int64_t width) {
  return clusters ? refuse_layer_cluster(rows, width, size_of(x.dtype)) : "";
}

// The operands that are in the type of the values, or may be in fp32.
template <typename Op>
Values forward_values(const Op& op) {
  const DType dtype = op.x.dtype;
  return {op.x, unless_mixed(op.gamma, dtype), unless_mixed(op.beta, dtype), op.y};
}
template <typename Op>
Values gradient_values(const Op& op) {
  const DType dtype = op.x.dtype;
  return {op.x,  unless_mixed(op.gamma, dtype),  op.dy,
          op.dx, unless_mixed(op.dgamma, dtype), unless_mixed(op.dbeta, dtype)};
}
template <typename T, typename Op>
NormGradArgs<T> gradient_args(const Op& op, const Binding& binding) {
  using A = Accumulated<T>;
  return {binding.read(op.x).template as<T>(),
          binding.read(op.dy).template as<T>(),
          read_mixed<T>(binding, op.gamma, op.x.dtype),
          binding.read(op.mean).template as<A>(),
          binding.read(op.rstd).template as<A>(),
          binding.write(op.dx).template as<T>(),
          write_mixed<T>(binding, op.dgamma, op.x.dtype),
          write_mixed<T>(binding, op.dbeta, op.x.dtype)};
}

Cover covers_layer_norm(const RemainingOps& rest, bool clusters) {
  const auto* op = rest.get<LayerNorm>(0);
  if (op == nullptr) return no_such_op(LayerNorm::kName);
  std::string reason =
      refuse_norm(forward_values(*op), {op->mean, op->rstd}, {op->rows(), op->width});
  if (reason.empty()) reason = refuse_rows(clusters, op->x, op->rows(), op->width);
  return cover_unless(reason, 1);
}

std::unique_ptr<Step> prepare_layer_norm(const Span& span, const Binding& binding, bool clusters) {
  const auto& op = span.get<LayerNorm>(0);
  return dispatch_device_float(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    using A = Accumulated<T>;
    const LayerNormArgs<T> args{binding.read(op.x).as<T>(),
                                read_mixed<T>(binding, op.gamma, op.x.dtype),
                                read_mixed<T>(binding, op.beta, op.x.dtype),
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

Cover covers_layer_norm_grad(const RemainingOps& rest, bool clusters) {
  const auto* op = rest.get<LayerNormGrad>(0);
  if (op == nullptr) return no_such_op(LayerNormGrad::kName);
  std::string reason =
      refuse_norm(gradient_values(*op), {op->mean, op->rstd}, {op->rows(), op->width});
  if (reason.empty()) reason = refuse_rows(clusters, op->x, op->rows(), op->width);
  return cover_unless(reason, 1);
}

std::unique_ptr<Step> prepare_layer_norm_grad(const Span& span, const Binding& binding,
                                              bool clusters) {
  const auto& op = span.get<LayerNormGrad>(0);
  return dispatch_device_float(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    const LayerNormGradArgs<T> args{gradient_args<T>(op, binding), op.rows(), int(op.width)};
    const auto launch = clusters ? launch_layer_norm_grad_cluster<T> : launch_layer_norm_grad<T>;
    return launch_step(binding, describe(span.op(0)),
                       [args, launch](cudaStream_t stream) { return launch(args, stream); });
  });
}

Cover covers_batch_norm(const RemainingOps& rest, bool) {
  const auto* op = rest.get<BatchNorm>(0);
  if (op == nullptr) return no_such_op(BatchNorm::kName);
  std::string reason =
      refuse_norm(forward_values(*op), {op->mean, op->rstd, op->running_mean, op->running_var},
                  {op->n(), op->in.c, op->in.pixels()});
  return cover_unless(reason, 1);
}

std::unique_ptr<Step> prepare_batch_norm(const Span& span, const Binding& binding, bool clusters) {
  const auto& op = span.get<BatchNorm>(0);
  return dispatch_device_float(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    using A = Accumulated<T>;
    const BatchNormArgs<T> args{binding.read(op.x).as<T>(),
                                read_mixed<T>(binding, op.gamma, op.x.dtype),
                                read_mixed<T>(binding, op.beta, op.x.dtype),
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

Cover covers_batch_norm_grad(const RemainingOps& rest, bool) {
  const auto* op = rest.get<BatchNormGrad>(0);
  if (op == nullptr) return no_such_op(BatchNormGrad::kName);
  std::string reason =
      refuse_norm(gradient_values(*op), {op->mean, op->rstd}, {op->n(), op->in.c, op->in.pixels()});
  return cover_unless(reason, 1);
}

std::unique_ptr<Step> prepare_batch_norm_grad(const Span& span, const Binding& binding,
                                              bool clusters) {
  const auto& op = span.get<BatchNormGrad>(0);
  return dispatch_device_float(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    const BatchNormGradArgs<T> args{gradient_args<T>(op, binding), int(op.n()), int(op.in.c),
                                    int(op.in.pixels())};
    const auto launch = clusters ? launch_batch_norm_grad_cluster<T> : launch_batch_norm_grad<T>;
    return launch_step(binding, describe(span.op(0)),
                       [args, launch](cudaStream_t stream) { return launch(args, stream); });
  });
}

Cover covers_batch_norm_infer(const RemainingOps& rest) {
  const auto* op = rest.get<BatchNormInfer>(0);
  if (op == nullptr) return no_such_op(BatchNormInfer::kName);
  return cover_unless(
      refuse_norm(forward_values(*op), {op->mean, op->var}, {op->n(), op->in.c, op->in.pixels()}),
      1);
}

std::unique_ptr<Step> prepare_batch_norm_infer(const Span& span, const Binding& binding) {
  const auto& op = span.get<BatchNormInfer>(0);
  return dispatch_device_float(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    using A = Accumulated<T>;
    const BatchNormInferArgs<T> args{binding.read(op.x).as<T>(),
                                     read_mixed<T>(binding, op.gamma, op.x.dtype),
                                     read_mixed<T>(binding, op.beta, op.x.dtype),
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

KernelTable norm_kernels() {
  KernelTable table;
  for (const bool clusters : {true, false}) {
    const auto add = [&](const char* op, auto covers, auto prepare) {
      table.push_back(cuda_kernel(fmt::format("cuda.{}.{}", op, clusters ? "cluster" : "plain"),
                                  covers, prepare, clusters, {.least_arch = clusters ? 90 : 0}));
    };
    add("layer_norm", covers_layer_norm, prepare_layer_norm);
    add("layer_norm_grad", covers_layer_norm_grad, prepare_layer_norm_grad);
    add("batch_norm", covers_batch_norm, prepare_batch_norm);
    add("batch_norm_grad", covers_batch_norm_grad, prepare_batch_norm_grad);
  }
  table.push_back(cuda_kernel("cuda.batch_norm_infer.plain", covers_batch_norm_infer,
                              prepare_batch_norm_infer));
  return concurrent(std::move(table));
}

}  // namespace ridgeline::cuda
