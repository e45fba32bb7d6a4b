// Training of networks over signals: gradients from plain signals, and the ops between them.
#include "ridgeline/cuda/conv1d/grads.h"
#include "ridgeline/cuda/conv1d/kernels.h"
#include "ridgeline/cuda/conv1d/one_hot_grad.h"
#include "ridgeline/cuda/conv1d/pool3.h"
#include "ridgeline/cuda/conv1d/shapes.h"
#include "ridgeline/cuda/plain/bind_mixed_operand.h"
#include "ridgeline/cuda/plain/conv.h"
#include "ridgeline/cuda/plain/geometry.h"
#include "ridgeline/cuda/pool_spans.h"

namespace ridgeline::cuda {
namespace {

Conv1dGradShape grad_shape(const Conv2dShape& shape, int64_t n) {
  return {int(n), int(shape.in.c), int(shape.in.w), int(shape.k), int(shape.window.w.kernel)};
}

std::string refuse_grad(const Conv2dShape& shape, int64_t n, const Values& values) {
  if (size_of(values[0].dtype) != 2) return "takes bf16 and fp16";
  std::string reason = refuse_signal_conv(shape);
  if (reason.empty()) reason = refuse_floats(values);
  if (reason.empty()) {
    reason = refuse_large({n, shape.in.numel(), shape.out().numel(), shape.weight().numel()});
  }
  return reason.empty() ? refuse_conv1d_grads(grad_shape(shape, n)) : reason;
}

Cover covers_grad_x(const RemainingOps& rest) {
  const auto* op = rest.get<Conv2dGradX>(0);
  if (op == nullptr) return no_such_op(Conv2dGradX::kName);
  return cover_unless(refuse_grad(op->shape, op->n(), {op->dy, op->w, op->dx}), 1,
                      conv1d_grad_x_workspace(grad_shape(op->shape, op->n())));
}

std::unique_ptr<Step> prepare_grad_x(const Span& span, const Binding& binding) {
  const auto& op = span.get<Conv2dGradX>(0);
  return dispatch_device_half(op.dy.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(
        binding, describe(span.op(0)),
        prepare_conv1d_grad_x<T>(grad_shape(op.shape, op.n()), binding.read(op.dy).as<T>(),
                                 binding.read(op.w).as<T>(), binding.write(op.dx).as<T>(),
                                 binding.workspace()));
  });
}

Cover covers_grad_w(const RemainingOps& rest) {
  const auto* op = rest.get<Conv2dGradW>(0);
  if (op == nullptr) return no_such_op(Conv2dGradW::kName);
  const DType dtype = op->dy.dtype;
  return cover_unless(
      refuse_grad(op->shape, op->n(),
                  {op->dy, op->x, unless_mixed(op->dw, dtype), unless_mixed(op->db, dtype)}),
      1, conv1d_grad_w_workspace(grad_shape(op->shape, op->n())));
}

// The plain kernel sums the bias gradient.
std::unique_ptr<Step> prepare_grad_w(const Span& span, const Binding& binding) {
  const auto& op = span.get<Conv2dGradW>(0);
  return dispatch_device_half(op.dy.dtype, [&](auto type) {
    using T = decltype(type);
    const auto product = prepare_conv1d_grad_w<T>(
        grad_shape(op.shape, op.n()), binding.read(op.x).as<T>(), binding.read(op.dy).as<T>(),
        write_mixed<T>(binding, op.dw, op.dy.dtype), binding.workspace());
    return launch_step(
        binding, describe(span.op(0)),
        [product, g = geometry_of(op.shape, op.n()), dy = binding.read(op.dy).as<T>(),
         db = write_mixed<T>(binding, op.db, op.dy.dtype)](cudaStream_t stream) {
          const cudaError_t error = product(stream);
          if (error != cudaSuccess || !db) return error;
          return launch_conv2d_grad_b<T>(g, dy, db, stream);
        });
  });
}

OneHotGeometry geometry_of(const OneHotConv1dGradW& op) {
  return {int(op.n()), int(op.length()), int(op.symbols()), int(op.out()), int(op.kernel())};
}

Cover covers_one_hot_grad(const RemainingOps& rest) {
  const auto* op = rest.get<OneHotConv1dGradW>(0);
  if (op == nullptr) return no_such_op(OneHotConv1dGradW::kName);
  const DType dtype = op->dy.dtype;
  if (size_of(dtype) != 2) return Cover::no("takes bf16 and fp16");
  std::string reason =
      refuse_floats({op->dy, unless_mixed(op->dw, dtype), unless_mixed(op->db, dtype)});
  if (reason.empty()) {
    reason = refuse_large({op->n(), op->length(), op->steps(), op->out(), op->dw.shape.numel()});
  }
  if (reason.empty()) reason = refuse_one_hot_grad(geometry_of(*op));
  if (!reason.empty()) return Cover::no(reason);
  return cover_unless(
      {}, 1, one_hot_grad_tensor_workspace(geometry_of(*op), cuda_runtime(rest.runtime).sms()));
}

std::unique_ptr<Step> prepare_one_hot_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<OneHotConv1dGradW>(0);
  return dispatch_device_half(op.dy.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(
        binding, describe(span.op(0)),
        [g = geometry_of(op), token = binding.read(op.token).as<int32_t>(),
         dy = binding.read(op.dy).as<T>(), dw = write_mixed<T>(binding, op.dw, op.dy.dtype),
         db = write_mixed<T>(binding, op.db, op.dy.dtype), workspace = binding.workspace(),
         count = cuda_runtime(binding.runtime()).sms()](cudaStream_t stream) {
          return launch_one_hot_grad_tensor<T>(g, token, dy, dw, db, workspace, count, stream);
        });
  });
}

// Requires pools whose windows are consecutive in memory.
std::string refuse_pool3(const PoolShape& shape, const Values& values) {
  if (values[0].dtype == DType::fp64) return "takes halves and fp32";
  if (values[0].shape.numel() == 0) return "an operand is empty";
  if (!is_pool3(shape) || shape.in.w % 3 != 0) {
    return "takes pools of 3 over lengths divisible by 3";
  }
  return refuse_floats(values);
}

Cover covers_relu_pool(const RemainingOps& rest) {
  return cover_activation_pool(rest, [](const Activation& activation, const MaxPool& pool) {
    if (activation.kind != ActivationKind::relu) return std::string("takes relu");
    return refuse_pool3(pool.shape, {activation.x, activation.y, pool.y});
  });
}

template <typename F>
std::unique_ptr<Step> dispatch_pool3(DType dtype, F f) {
  return dtype == DType::fp32 ? f(float{}) : dispatch_device_half(dtype, f);
}

std::unique_ptr<Step> prepare_relu_pool(const Span& span, const Binding& binding) {
  const auto& relu = span.get<Activation>(0);
  const auto& pool = span.get<MaxPool>(1);
  return dispatch_pool3(pool.y.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(binding, describe(span.op(1)),
                       [windows = pool.y.shape.numel(), z = binding.read(relu.x).as<T>(),
                        a = binding.write(relu.y).as<T>(),
                        y = binding.write(pool.y).as<T>()](cudaStream_t stream) {
                         return launch_relu_pool3<T>(windows, z, a, y, stream);
                       });
  });
}

Cover covers_pool_relu_grad(const RemainingOps& rest) {
  return cover_pool_activation_grad(
      rest, [](const MaxPoolGrad& pool, const ActivationGrad& activation) {
        if (activation.kind != ActivationKind::relu) return std::string("takes relu");
        return refuse_pool3(pool.shape, {pool.x, pool.dy, activation.dx});
      });
}

std::unique_ptr<Step> prepare_pool_relu_grad(const Span& span, const Binding& binding) {
  const auto& pool = span.get<MaxPoolGrad>(0);
  const auto& relu = span.get<ActivationGrad>(1);
  return dispatch_pool3(pool.dy.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(binding, describe(span.op(0)),
                       [windows = pool.dy.shape.numel(), a = binding.read(pool.x).as<T>(),
                        dy = binding.read(pool.dy).as<T>(),
                        dz = binding.write(relu.dx).as<T>()](cudaStream_t stream) {
                         return launch_pool3_relu_grad<T>(windows, a, dy, dz, stream);
                       });
  });
}

}  // namespace

KernelTable signal_training_kernels() {
  constexpr Traits kPools{.precisions = kStoredInFp32 | kHalves};
  constexpr Traits kGrads{.precisions = kHalves, .least_arch = 80};
  return {cuda_kernel("cuda.relu_pool.pool3", covers_relu_pool, prepare_relu_pool, kPools),
          cuda_kernel("cuda.pool_relu_grad.pool3", covers_pool_relu_grad, prepare_pool_relu_grad,
                      kPools),
          cuda_kernel("cuda.one_hot_conv1d_grad_w.tensor", covers_one_hot_grad,
                      prepare_one_hot_grad, kGrads),
          cuda_kernel("cuda.conv1d_grad_x.tensor", covers_grad_x, prepare_grad_x, kGrads),
          cuda_kernel("cuda.conv1d_grad_w.tensor", covers_grad_w, prepare_grad_w, kGrads)};
}

}  // namespace ridgeline::cuda
