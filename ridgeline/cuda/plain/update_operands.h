#pragma once

#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/update.h"

// The operands of the launches in update.h, for kernels that make them.
namespace ridgeline::cuda {

inline Values states(const SgdUpdate& op) { return {op.m}; }
inline Values states(const AdamUpdate& op) { return {op.m, op.v}; }

// Why the kernels cannot take these types: they support one type for weight and gradient, its
// accumulator type for the state, and half types as copies of fp32 weights.
template <typename Update>
std::string refuse_types(const Update& op) {
  if (std::string reason = refuse_floats({op.w, op.dw}); !reason.empty()) return reason;
  for (const Value& state : states(op)) {
    if (state && state.dtype != accumulated(op.w.dtype)) {
      return fmt::format("wants state in {}", name(accumulated(op.w.dtype)));
    }
  }
  if (op.copy && (op.w.dtype != DType::fp32 || size_of(op.copy.dtype) != 2)) {
    return "copies are halves of fp32 weights";
  }
  return {};
}

template <typename T, typename Update>
UpdateTensor<T> tensor_of(const Update& op, const Binding& binding) {
  UpdateTensor<T> tensor;
  tensor.w = binding.write(op.w).template as<T>();
  tensor.dw = binding.read(op.dw).template as<T>();
  using Accumulator = typename UpdateTensor<T>::Accumulator;
  tensor.m = binding.write(op.m).template as<Accumulator>();
  if constexpr (requires { op.v; }) tensor.v = binding.write(op.v).template as<Accumulator>();
  tensor.copy = binding.write(op.copy).data;
  tensor.copy_is_bf16 = op.copy.dtype == DType::bf16;
  tensor.count = op.w.shape.numel();
  return tensor;
}

}  // namespace ridgeline::cuda
