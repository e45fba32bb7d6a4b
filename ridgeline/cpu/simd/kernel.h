#pragma once

#include <fmt/core.h>

#include <memory>
#include <string>

#include "ridgeline/core/buffer.h"
#include "ridgeline/cpu/runtime.h"
#include "ridgeline/cpu/simd/gemm.h"
#include "ridgeline/ops/activation.h"
#include "ridgeline/plan/kernel.h"

// Helpers that the kernels of this folder share.
namespace ridgeline::cpu::simd {

// The precisions of most kernels of this folder. The only other ones on a CPU are the half types.
inline constexpr Precisions kFloatAndDouble{Precision::fp64, Precision::fp32};
inline constexpr Precisions kFloatOnly{Precision::fp32};
inline constexpr Precisions kBf16Only{Precision::bf16};

constexpr bool takes(DType dtype) { return dtype == DType::fp32 || dtype == DType::fp64; }

// Calls f(float{}) or f(double{}).
template <typename F>
decltype(auto) with_type(DType dtype, F&& f) {
  return dtype == DType::fp32 ? f(float{}) : f(double{});
}

// Takes an Activation or an ActivationGrad.
template <typename Op>
SimdActivation simd_activation(const Op& op) {
  return {op.kind, op.parameter};
}

// With at least this many samples per thread, the threads of a linear layer divide the batch; with
// fewer, the rows of the weights.
inline constexpr int64_t kLayerRowsToShareBatch = 128;

// The elements per thread from which on a second thread is worth waking: about a microsecond of
// cheap work.
inline constexpr int64_t kLeastElements = 4096;

// Lays out the scratch memory of a kernel. The same calls are made twice in the same order: first
// without a base, to compute the size, then with one, to get the addresses.
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

// The refusal of kernels that multiply by blocks of split_product.h.
inline constexpr const char* kSplitsOnly = "splits fp32 only";

// Returns why a kernel of one op, or of one op and its followers, does not apply; empty if it
// does.
template <typename Op>
std::string refuses(const RemainingOps& rest, const Value Op::*typed) {
  const auto* op = rest.get<Op>(0);
  if (op == nullptr) return fmt::format("the next op is no {}", Op::kName);
  if (!takes((op->*typed).dtype)) return "takes fp32 and fp64 only";
  if ((op->*typed).shape.numel() == 0) return "empty";
  return {};
}

// Returns the kernel cpu.<op>.simd of one op, which takes it unless refuses() has a reason.
template <typename Op>
Kernel one_op_kernel(const Value Op::*typed,
                     std::unique_ptr<Step> (*prepare)(const Span&, const Binding&)) {
  Kernel kernel;
  kernel.name = fmt::format("cpu.{}.simd", Op::kName);
  kernel.covers = [typed](const RemainingOps& rest) {
    const std::string reason = refuses(rest, typed);
    return reason.empty() ? Cover::of(1) : Cover::no(reason);
  };
  kernel.prepare = prepare;
  return kernel;
}

// The kernels of each family; each family has one file.
KernelTable conv_kernels();
Kernel pool_sparse_grad_kernel();  // part of conv_kernels
KernelTable linear_kernels();
Kernel linear_chain_kernel();  // part of linear_kernels
KernelTable elementwise_kernels();
KernelTable softmax_kernels();
KernelTable weighted_xent_kernels();
KernelTable elementwise_loss_kernels();
KernelTable group_norm_kernels();
KernelTable batch_norm_kernels();
KernelTable join_kernels();
KernelTable rearrange_kernels();
KernelTable unary_kernels();
KernelTable gather_augment_kernels();
KernelTable embedding_kernels();
KernelTable dropout_kernels();
KernelTable one_hot_conv_kernels();
KernelTable signal_kernels();
KernelTable bf16_kernels();
KernelTable update_kernels();
KernelTable all_reduce_kernels();
Kernel linear_grad_w_sum_kernel();
Kernel mlp_gradients_kernel();
Kernel mlp_shared_kernel();
KernelTable mlp_kernels();
KernelTable recurrent_kernels();
KernelTable recurrent_weight_kernels();  // part of recurrent_kernels
// These are also parts of recurrent_kernels; with an engine they multiply by blocks of
// split_product.h.
struct SplitChoice;
Kernel recurrent_grad_kernel(std::string name, const SplitChoice& choice);
Kernel recurrent_layer_grads_kernel(std::string name, const SplitChoice& choice);

}  // namespace ridgeline::cpu::simd
