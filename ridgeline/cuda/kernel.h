#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "ridgeline/cuda/activation.h"
#include "ridgeline/cuda/error.h"
#include "ridgeline/cuda/runtime.h"
#include "ridgeline/plan/kernel.h"

// Helpers that the kernel files share.
namespace ridgeline::cuda {

// Like dispatch_float, with the types of CUDA's headers.
template <typename F>
decltype(auto) dispatch_device_float(DType dtype, F&& f) {
  return dispatch_float<__nv_bfloat16, __half>(dtype, std::forward<F>(f));
}

// Like dispatch_device_float, for bf16 and fp16 only.
template <typename F>
decltype(auto) dispatch_device_half(DType dtype, F&& f) {
  return dtype == DType::bf16 ? f(__nv_bfloat16{}) : f(__half{});
}

// A Step of one or a few launches: launch(stream) returns the last error. `what` names the op and
// its shapes in the message if a launch fails; `variant` as in Step.
template <typename F>
std::unique_ptr<Step> launch_step(const Binding& binding, std::string what, F launch,
                                  std::string variant = {}) {
  return make_step([stream = cuda_runtime(binding.runtime()).stream(), what = std::move(what),
                    launch = std::move(launch)] { check(launch(stream), what); },
                   std::move(variant));
}

// Why a kernel for a single float type cannot take these operands; "" if it can. Absent operands
// are skipped.
inline std::string refuse_floats(const Values& values) {
  const Value* first = nullptr;
  for (const Value& value : values) {
    if (!value) continue;
    if (!is_float(value.dtype)) return "takes floating-point values only";
    if (first != nullptr && value.dtype != first->dtype) {
      return fmt::format("all values must be of one type, not {} and {}", name(first->dtype),
                         name(value.dtype));
    }
    if (first == nullptr) first = &value;
  }
  return {};
}

// The accumulator dtype of sums: fp64 for fp64, fp32 for everything narrower.
inline DType accumulated(DType dtype) { return dtype == DType::fp64 ? DType::fp64 : DType::fp32; }

// Whether a value that is summed from halves is stored in fp32, the accumulator dtype.
inline bool is_accumulator(const Value& value, DType factors) {
  return value && size_of(factors) == 2 && value.dtype == DType::fp32;
}

// The value, or none if it is in the accumulator dtype; for refuse_floats.
inline Value unless_accumulator(const Value& value, DType factors) {
  return is_accumulator(value, factors) ? Value{} : value;
}

// Why kernels that count rows and columns in 32 bits cannot take these extents; "" if they can.
inline std::string refuse_large(std::initializer_list<int64_t> extents) {
  for (const int64_t extent : extents) {
    if (extent > std::numeric_limits<int32_t>::max() / 2) return "an extent of over 2^30";
    if (extent == 0) return "an operand is empty";
  }
  return {};
}

inline Cover cover_unless(std::string reason, size_t ops, size_t workspace = 0) {
  if (!reason.empty()) return Cover::no(std::move(reason));
  Cover cover = Cover::of(ops);
  cover.workspace = workspace;
  return cover;
}

inline Cover no_such_op(const char* op) {
  return Cover::no(fmt::format("the next op is no {}", op));
}

inline Kernel cuda_kernel(std::string name, std::function<Cover(const RemainingOps&)> covers,
                          std::function<std::unique_ptr<Step>(const Span&, const Binding&)> prepare,
                          const Traits& traits = {}) {
  Kernel kernel;
  kernel.name = std::move(name);
  kernel.target = DeviceKind::cuda;
  kernel.covers = std::move(covers);
  kernel.prepare = std::move(prepare);
  kernel.traits = traits;
  return kernel;
}

// One of several kernels that differ in one argument of their functions.
template <typename How>
Kernel cuda_kernel(std::string name, Cover (*covers)(const RemainingOps&, How),
                   std::unique_ptr<Step> (*prepare)(const Span&, const Binding&, How),
                   const std::decay_t<How>& how, const Traits& traits = {}) {
  return cuda_kernel(
      std::move(name), [covers, how](const RemainingOps& rest) { return covers(rest, how); },
      [prepare, how](const Span& span, const Binding& binding) {
        return prepare(span, binding, how);
      },
      traits);
}

// Traits of tensor-core kernels: mma from sm_80 on, wgmma on sm_90a only.
inline constexpr Precisions kTf32AndHalves = kHalves | Precisions{Precision::tf32};
inline constexpr Traits kMma{.precisions = kTf32AndHalves, .least_arch = 80};
inline constexpr Traits kWgmma{.precisions = kTf32AndHalves, .least_arch = 90, .only_arch = true};
inline constexpr Traits kWgmmaOfHalves{.precisions = kHalves, .least_arch = 90, .only_arch = true};
// fp32 multiply-adds, with asynchronous copies into shared memory.
inline constexpr Traits kFp32Fma{.precisions = kStoredInFp32, .least_arch = 80};
// Returns the table with these traits set in all its kernels.
inline KernelTable with_traits(const Traits& traits, KernelTable table) {
  for (Kernel& kernel : table) kernel.traits = traits;
  return table;
}

// Marks all kernels of a family as able to run concurrently with others in a graph.
inline KernelTable concurrent(KernelTable table) {
  for (Kernel& kernel : table) kernel.traits.concurrent = true;
  return table;
}

// The activations that fused kernels support; the others have kernels of their own (elementwise.h).
constexpr bool has_activation_fn(ActivationKind kind) {
  return saves_output(kind) || kind == ActivationKind::gelu;
}
inline constexpr const char* kNoActivationFn = "takes relu, tanh, sigmoid and gelu only";

// The kind must be one that has_activation_fn() accepts.
inline ActivationFn activation_of(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::relu:
      return ActivationFn::relu;
    case ActivationKind::tanh:
      return ActivationFn::tanh;
    case ActivationKind::sigmoid:
      return ActivationFn::sigmoid;
    case ActivationKind::gelu:
      return ActivationFn::gelu;
    case ActivationKind::none:
    case ActivationKind::silu:
    case ActivationKind::leaky_relu:
    case ActivationKind::elu:
    case ActivationKind::softplus:
    case ActivationKind::hardswish:
      break;
  }
  return ActivationFn::none;
}

}  // namespace ridgeline::cuda
