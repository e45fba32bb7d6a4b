#pragma once

#include <fmt/core.h>

#include <memory>
#include <string>

#include "ridgeline/core/buffer.h"
#include "ridgeline/cpu/runtime.h"
#include "ridgeline/cpu/simd/gemm.h"
#include "ridgeline/ops/activation.h"
#include "ridgeline/plan/impl.h"

// What the rows of this folder share.
namespace ridgeline::cpu::simd {

constexpr bool takes(DType dtype) { return dtype == DType::fp32 || dtype == DType::fp64; }

// Calls f(float{}) or f(double{}).
template <typename F>
decltype(auto) with_type(DType dtype, F&& f) {
  return dtype == DType::fp32 ? f(float{}) : f(double{});
}

inline Act act_of(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::relu:
      return Act::relu;
    case ActivationKind::tanh:
      return Act::tanh;
    case ActivationKind::sigmoid:
      return Act::sigmoid;
    case ActivationKind::gelu:
      return Act::gelu;
  }
  return Act::none;
}

// Elements a thread must have before a second one is woken: about a microsecond of cheap work.
inline constexpr int64_t kLeastElements = 4096;

// Adds up what a row needs of scratch, then hands it out: the same calls in the same order, first
// with no base to learn the size.
class Scratch {
 public:
  explicit Scratch(std::byte* base = nullptr) : base_(base) {}

  template <typename T>
  T* take(size_t elements) {
    std::byte* at = base_ != nullptr ? base_ + bytes_ : nullptr;
    bytes_ += align_up(elements * sizeof(T));
    return reinterpret_cast<T*>(at);
  }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  size_t bytes_ = 0;
};

// Why a row by blocks of split_product.h refuses.
inline constexpr const char* kSplitsOnly = "splits fp32 only";

// The reason why a row of one op, or of one op and what follows, does not apply; empty if it does.
template <typename Op>
std::string refuses(const Rest& rest, const Value Op::*typed) {
  const auto* op = rest.get<Op>(0);
  if (op == nullptr) return fmt::format("the next op is no {}", Op::kName);
  if (!takes((op->*typed).dtype)) return "takes fp32 and fp64 only";
  if ((op->*typed).shape.numel() == 0) return "empty";
  return {};
}

// Each family's rows, one file a family.
Table conv_rows();
Impl window_grad_row();  // part of conv_rows
Table linear_rows();
Table elementwise_rows();
Table softmax_rows();
Table mse_rows();
Table dropout_rows();
Table one_hot_conv_rows();
Table signal_rows();
Table bf16_rows();
Table update_rows();
Table all_reduce_rows();
Impl linear_grad_w_sum_row();
Impl mlp_gradients_row();
Impl mlp_shared_row();
Table mlp_rows();
Table recurrent_rows();
Table recurrent_weight_rows();  // part of recurrent_rows
// Likewise; by blocks of split_product.h where there is an engine.
struct SplitChoice;
Impl recurrent_grad_row(std::string name, const SplitChoice& choice);
Impl recurrent_layer_grads_row(std::string name, const SplitChoice& choice);

}  // namespace ridgeline::cpu::simd
