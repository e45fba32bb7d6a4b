#include "ridgeline/cpu/custom.h"

#include <fmt/format.h>

#include <memory>

namespace ridgeline::cpu {
namespace {

std::span<float> floats(const Tensor& tensor) {
  return tensor.data != nullptr ? std::span<float>(tensor.as<float>(), size_t(tensor.numel()))
                                : std::span<float>();
}

template <typename Op>
Cover covers(const RemainingOps& rest) {
  const auto* op = rest.get<Op>(0);
  if (op == nullptr) return Cover::no(fmt::format("the next op is no {}", Op::kName));
  if (op->x.dtype != DType::fp32) return Cover::no("layers from outside compute in fp32 only");
  return Cover::of(1);
}

std::unique_ptr<Step> prepare(const Custom& op, const Binding& binding) {
  LayerBatch batch;
  batch.samples = op.x.shape[0];
  batch.x = floats(binding.read(op.x));
  for (const Value& weight : op.weights) batch.weights.push_back(floats(binding.read(weight)));
  batch.y = floats(binding.write(op.y));
  return make_step([layer = op.layer, batch] { layer->forward(batch); });
}

std::unique_ptr<Step> prepare(const CustomGrad& op, const Binding& binding) {
  LayerBatch batch;
  batch.samples = op.x.shape[0];
  batch.x = floats(binding.read(op.x));
  batch.y = floats(binding.read(op.y));
  batch.dy = floats(binding.read(op.dy));
  for (const Value& weight : op.weights) batch.weights.push_back(floats(binding.read(weight)));
  batch.dx = floats(binding.write(op.dx));
  for (const Value& grad : op.weight_grads) {
    batch.weight_grads.push_back(floats(binding.write(grad)));
  }
  return make_step([layer = op.layer, batch] { layer->backward(batch); });
}

template <typename Op>
Kernel callback_kernel() {
  Kernel kernel;
  kernel.name = fmt::format("cpu.{}.callback", Op::kName);
  kernel.traits.precisions = {Precision::fp32};
  kernel.covers = covers<Op>;
  kernel.prepare = [](const Span& span, const Binding& binding) {
    return prepare(span.get<Op>(0), binding);
  };
  return kernel;
}

}  // namespace

KernelTable custom_kernels() { return {callback_kernel<Custom>(), callback_kernel<CustomGrad>()}; }

}  // namespace ridgeline::cpu
