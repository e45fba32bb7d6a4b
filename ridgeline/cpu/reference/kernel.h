#pragma once

#include "ridgeline/core/buffer.h"
#include "ridgeline/cpu/reference/doubles.h"
#include "ridgeline/cpu/runtime.h"
#include "ridgeline/plan/kernel.h"

namespace ridgeline::cpu {

// The precisions of runs on a CPU.
inline constexpr Precisions kCpuPrecisions{Precision::fp64, Precision::fp32, Precision::bf16,
                                           Precision::fp16};

// A kernel's binding that also provides its operands as doubles, each in a slice of the workspace.
class ReferenceBinding final : public Binding {
 public:
  ReferenceBinding(const Binding& binding, size_t workspace_bytes)
      : binding_(binding), left_(workspace_bytes) {}

  Runtime& runtime() const override { return binding_.runtime(); }
  Tensor read(const Value& value) const override { return binding_.read(value); }
  Tensor write(const Value& value) const override { return binding_.write(value); }
  std::byte* workspace() const override { return binding_.workspace(); }

  Doubles reads(const Value& value) { return take(read(value)); }
  Doubles writes(const Value& value) { return take(write(value)); }

  // Returns the bytes that the operands of an op take.
  template <typename T>
  static size_t workspace_bytes(const T& op) {
    size_t bytes = 0;
    for (const Values& values : {op.reads(), op.writes()}) {
      for (const Value& value : values) {
        if (value && is_float(value.dtype)) bytes += bytes_of(value.shape);
      }
    }
    return bytes;
  }

 private:
  static size_t bytes_of(const Shape& shape) {
    return align_up(size_t(shape.numel()) * sizeof(double));
  }
  Doubles take(const Tensor& tensor) {
    if (tensor.data == nullptr) return {};
    const size_t bytes = bytes_of(tensor.shape);
    if (bytes > left_)
      throw_error(ErrorKind::usage, "a reference kernel reads what its op does not");
    left_ -= bytes;
    return {tensor, reinterpret_cast<double*>(workspace() + left_)};
  }

  const Binding& binding_;
  size_t left_;  // bytes of the workspace; slices are taken from the end
};

// Makes the kernel "cpu.<op>.reference" of one op: prepare(op, binding) makes its step.
template <typename T>
Kernel reference_kernel(std::unique_ptr<Step> (*prepare)(const T& op, ReferenceBinding& binding)) {
  Kernel kernel;
  kernel.name = fmt::format("cpu.{}.reference", T::kName);
  kernel.traits.precisions = kCpuPrecisions;
  kernel.traits.fallback = true;
  kernel.covers = [](const RemainingOps& rest) {
    const T* op = rest.get<T>(0);
    if (op == nullptr) return Cover::no(fmt::format("the next op is no {}", T::kName));
    Cover cover = Cover::of(1);
    cover.workspace = ReferenceBinding::workspace_bytes(*op);
    return cover;
  };
  kernel.prepare = [prepare](const Span& span, const Binding& binding) {
    const T& op = span.get<T>(0);
    ReferenceBinding with_doubles(binding, ReferenceBinding::workspace_bytes(op));
    return prepare(op, with_doubles);
  };
  return kernel;
}

// Calls f(i) for i in [0, count), spread over the pool.
template <typename F>
void for_each(ThreadPool& pool, int64_t count, F f) {
  pool.run([&](int thread) {
    const Range part = split(count, thread, pool.size());
    for (int64_t i = part.begin; i < part.end; ++i) f(i);
  });
}

// Returns the program's value, or `otherwise` if it is absent.
inline double first_or(const Tensor& tensor, double otherwise) {
  return tensor.data != nullptr ? *tensor.as<double>() : otherwise;
}

// The kernels of each family; each family has one file.
KernelTable gather_reference();
KernelTable linear_reference();
KernelTable conv_reference();
KernelTable one_hot_conv_reference();
KernelTable pool_reference();
KernelTable norm_reference();
KernelTable group_norm_reference();
KernelTable activation_reference();
KernelTable dropout_reference();
KernelTable softmax_reference();
KernelTable mse_reference();
KernelTable elementwise_loss_reference();
KernelTable update_reference();
KernelTable recurrent_reference();
KernelTable sequence_reference();
KernelTable join_reference();
KernelTable rearrange_reference();
KernelTable unary_reference();
KernelTable all_reduce_reference();

}  // namespace ridgeline::cpu
