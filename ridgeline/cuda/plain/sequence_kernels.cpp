#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/bind_mixed_operand.h"
#include "ridgeline/cuda/plain/kernels.h"
#include "ridgeline/cuda/plain/sequence.h"

namespace ridgeline::cuda {
namespace {

constexpr int64_t kMostCodes = int64_t{1} << 30, kMostWidth = int64_t{65535} * 32;

Cover covers_embedding(const RemainingOps& rest) {
  const auto* op = rest.get<Embedding>(0);
  if (op == nullptr) return no_such_op(Embedding::kName);
  return cover_unless(refuse_floats({op->w, op->y}), 1);
}

std::unique_ptr<Step> prepare_embedding(const Span& span, const Binding& binding) {
  const auto& op = span.get<Embedding>(0);
  return dispatch_device_float(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(binding, describe(span.op(0)),
                       [token = binding.read(op.token).as<int32_t>(),
                        w = binding.read(op.w).as<T>(), y = binding.write(op.y).as<T>(),
                        count = op.count(), width = op.width()](cudaStream_t stream) {
                         return launch_embedding<T>(token, w, y, count, width, stream);
                       });
  });
}

Cover covers_embedding_grad(const RemainingOps& rest) {
  const auto* op = rest.get<EmbeddingGrad>(0);
  if (op == nullptr) return no_such_op(EmbeddingGrad::kName);
  std::string reason = refuse_floats({op->dy, unless_mixed(op->dw, op->dy.dtype)});
  if (reason.empty() && (op->dw.shape[0] > kMostCodes || op->width() > kMostWidth)) {
    reason = "more codes or columns than a grid has blocks";
  }
  return cover_unless(std::move(reason), 1);
}

std::unique_ptr<Step> prepare_embedding_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<EmbeddingGrad>(0);
  return dispatch_device_float(op.dy.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(
        binding, describe(span.op(0)),
        [token = binding.read(op.token).as<int32_t>(), dy = binding.read(op.dy).as<T>(),
         dw = write_mixed<T>(binding, op.dw, op.dy.dtype), count = op.count(),
         codes = op.dw.shape[0], width = op.width()](cudaStream_t stream) {
          return launch_embedding_grad<T>(token, dy, dw, count, codes, width, stream);
        });
  });
}

template <typename Op>
StepChoice choice_of(const Op& op, const Binding& binding) {
  return {op.batch(), op.steps, op.at, op.features(),
          binding.read(op.lengths).template as<int32_t>()};
}

Cover covers_select(const RemainingOps& rest) {
  const auto* op = rest.get<SelectTimestep>(0);
  if (op == nullptr) return no_such_op(SelectTimestep::kName);
  return cover_unless(refuse_floats({op->x, op->y}), 1);
}

std::unique_ptr<Step> prepare_select(const Span& span, const Binding& binding) {
  const auto& op = span.get<SelectTimestep>(0);
  return dispatch_device_float(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(binding, describe(span.op(0)),
                       [choice = choice_of(op, binding), x = binding.read(op.x).as<T>(),
                        y = binding.write(op.y).as<T>()](cudaStream_t stream) {
                         return launch_select_timestep<T>(choice, x, y, stream);
                       });
  });
}

Cover covers_select_grad(const RemainingOps& rest) {
  const auto* op = rest.get<SelectTimestepGrad>(0);
  if (op == nullptr) return no_such_op(SelectTimestepGrad::kName);
  return cover_unless(refuse_floats({op->dy, op->dx}), 1);
}

std::unique_ptr<Step> prepare_select_grad(const Span& span, const Binding& binding) {
  const auto& op = span.get<SelectTimestepGrad>(0);
  return dispatch_device_float(op.dx.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(binding, describe(span.op(0)),
                       [choice = choice_of(op, binding), dy = binding.read(op.dy).as<T>(),
                        dx = binding.write(op.dx).as<T>()](cudaStream_t stream) {
                         return launch_select_timestep_grad<T>(choice, dy, dx, stream);
                       });
  });
}

Cover covers_copy(const RemainingOps& rest) {
  const auto* op = rest.get<Copy>(0);
  if (op == nullptr) return no_such_op(Copy::kName);
  return op->from.dtype == op->to.dtype ? Cover::of(1) : Cover::no("copies within one type");
}

std::unique_ptr<Step> prepare_copy(const Span& span, const Binding& binding) {
  const auto& op = span.get<Copy>(0);
  return launch_step(
      binding, describe(span.op(0)),
      [from = binding.read(op.from), to = binding.write(op.to)](cudaStream_t stream) {
        return cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDeviceToDevice, stream);
      });
}

}  // namespace

KernelTable plain_sequence_kernels() {
  return concurrent(
      {cuda_kernel("cuda.embedding.plain", covers_embedding, prepare_embedding),
       cuda_kernel("cuda.embedding_grad.plain", covers_embedding_grad, prepare_embedding_grad),
       cuda_kernel("cuda.select_timestep.plain", covers_select, prepare_select),
       cuda_kernel("cuda.select_timestep_grad.plain", covers_select_grad, prepare_select_grad),
       cuda_kernel("cuda.copy.plain", covers_copy, prepare_copy)});
}

}  // namespace ridgeline::cuda
