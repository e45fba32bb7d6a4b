#pragma once

#include <dnnl.hpp>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "ridgeline/core/machine_limits.h"
#include "ridgeline/cpu/onednn/omp_team.h"
#include "ridgeline/cpu/onednn/quiet_workers.h"
#include "ridgeline/cpu/runtime.h"
#include "ridgeline/plan/kernel.h"

namespace ridgeline::cpu {

using Dim = dnnl::memory::dim;

// oneDNN's view of fp32 matrices in our memory: [rows, columns] with any strides.
inline dnnl::memory::desc matrix(Dim rows, Dim columns, Dim row_stride, Dim column_stride) {
  return {{rows, columns}, dnnl::memory::data_type::f32, {row_stride, column_stride}};
}
inline dnnl::memory::desc matrix(Dim rows, Dim columns) {
  return matrix(rows, columns, columns, 1);
}
inline dnnl::memory::desc transposed(Dim rows, Dim columns) {
  return matrix(rows, columns, 1, rows);
}
inline dnnl::memory::desc vector(Dim size) {
  return {{size}, dnnl::memory::data_type::f32, dnnl::memory::dims{1}};
}

// The address space that oneDNN may need besides its buffers to create a primitive: generated code
// and scratch memory of each thread. oneDNN does not check whether its allocations succeed.
constexpr size_t kOnednnAddressSpace = size_t{64} << 20;

// Prepares OpenMP's threads for a step; returns how many it may use.
inline int begin_with(const Binding& binding) {
  if (!has_address_space(kOnednnAddressSpace)) {
    throw_error(ErrorKind::device,
                "out of memory: oneDNN wants {} bytes of address space; raise ulimit -v, use fewer "
                "--threads or leave its kernels out with --kernels '!cpu.*.onednn*'",
                kOnednnAddressSpace);
  }
  const int threads = cpu_runtime(binding.runtime()).pool().size();
  quiet_workers(threads);
  return use_omp_threads(threads);
}

// Calls f, which executes primitives, and turns oneDNN's exceptions (out of memory) into an Error.
template <typename F>
void executed(F f) {
  try {
    f();
  } catch (const dnnl::error& error) {
    throw_error(ErrorKind::device,
                "oneDNN: {}; leave its kernels out with --kernels '!cpu.*.onednn*'", error.what());
  }
}

// A primitive with its memory, all created in prepare; run() only executes. Debian's oneDNN uses
// OpenMP's threads, whose count is set before each use: it is a setting of the calling thread, and
// two runtimes may differ.
class PrimitiveStep final : public Step {
 public:
  explicit PrimitiveStep(const Binding& binding)
      : threads_(begin_with(binding)), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  const dnnl::engine& engine() const { return engine_; }
  void set(dnnl::primitive primitive) { primitive_ = std::move(primitive); }
  void bind(int argument, const dnnl::memory::desc& description, const Tensor& tensor) {
    arguments_.insert({argument, dnnl::memory(description, engine_, tensor.data)});
  }

  void run() override {
    use_omp_threads(threads_);
    executed([&] { primitive_.execute(stream_, arguments_); });
  }

 private:
  int threads_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  dnnl::primitive primitive_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

// Primitives executed one after the other, with their memory. Its own memory (weights in oneDNN's
// layout) is created in prepare.
class PrimitiveChain final : public Step {
 public:
  using Arguments = std::unordered_map<int, dnnl::memory>;

  explicit PrimitiveChain(const Binding& binding)
      : threads_(begin_with(binding)), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  const dnnl::engine& engine() const { return engine_; }
  dnnl::memory memory(const dnnl::memory::desc& description, const Tensor& tensor) const {
    return {description, engine_, tensor.data};
  }
  dnnl::memory memory(const dnnl::memory::desc& description) const {
    return {description, engine_};
  }
  void add(dnnl::primitive primitive, Arguments arguments) {
    calls_.emplace_back(std::move(primitive), std::move(arguments));
  }
  // Returns `from`, or a copy of it in the layout `wanted` that is made again in each run.
  dnnl::memory reordered(const dnnl::memory& from, const dnnl::memory::desc& wanted) {
    if (from.get_desc() == wanted) return from;
    dnnl::memory to = memory(wanted);
    add(dnnl::reorder(from, to), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
    return to;
  }

  // Returns such a copy that is made once, for weights that never change.
  dnnl::memory packed(dnnl::memory from, const dnnl::memory::desc& wanted) {
    if (from.get_desc() == wanted) return from;
    dnnl::memory to = memory(wanted);
    executed([&] {
      dnnl::reorder(from, to).execute(stream_, from, to);
      stream_.wait();
    });
    return to;
  }

  void run() override {
    use_omp_threads(threads_);
    executed([&] {
      for (auto& [primitive, arguments] : calls_) primitive.execute(stream_, arguments);
    });
  }

 private:
  int threads_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  std::vector<std::pair<dnnl::primitive, Arguments>> calls_;
};

// An activation in oneDNN's terms.
struct Eltwise {
  dnnl::algorithm algorithm = dnnl::algorithm::undef;  // undef: not supported
  float alpha = 0;

  explicit operator bool() const { return algorithm != dnnl::algorithm::undef; }
};

// Takes an Activation or an ActivationGrad, but not softplus and elu: oneDNN computes log(1 + e^x)
// and e^x - 1 by subtracting and adding 1, which loses the small results for x below 0.
template <typename Op>
Eltwise eltwise(const Op& op) {
  using enum dnnl::algorithm;
  switch (op.kind) {
    case ActivationKind::relu:
      return {eltwise_relu};
    case ActivationKind::tanh:
      return {eltwise_tanh};
    case ActivationKind::sigmoid:
      return {eltwise_logistic};
    case ActivationKind::gelu:
      return {eltwise_gelu_erf};
    case ActivationKind::silu:
      return {eltwise_swish, 1.0f};
    case ActivationKind::leaky_relu:
      return {eltwise_relu, float(op.parameter)};
    case ActivationKind::hardswish:
      return {eltwise_hardswish};
    case ActivationKind::none:
    case ActivationKind::elu:
    case ActivationKind::softplus:
      break;
  }
  return {};
}

inline constexpr const char* kNoEltwise = "oneDNN has no such activation of this accuracy";

// Returns why oneDNN cannot take these operands, or "".
inline std::string refuse(const Values& values) {
  for (const Value& value : values) {
    if (!value) continue;
    if (value.dtype != DType::fp32) return "fp32 only";
    if (value.shape.numel() == 0) return "an operand is empty";
  }
  return "";
}

inline Kernel onednn_kernel(
    std::string name, std::function<Cover(const RemainingOps&)> covers,
    std::function<std::unique_ptr<Step>(const Span&, const Binding&)> prepare) {
  Kernel impl;
  impl.name = std::move(name);
  impl.covers = std::move(covers);
  impl.prepare = std::move(prepare);
  impl.traits.precisions = {Precision::fp32};
  impl.traits.library = Library::onednn;
  impl.traits.vendor = true;
  return impl;
}

// Rethrows oneDNN's exceptions as our Error, with the kernel's name.
template <typename F>
std::unique_ptr<Step> checked(std::string_view kernel, F make) {
  try {
    return make();
  } catch (const dnnl::error& error) {
    throw_error(ErrorKind::device, "{}: oneDNN: {}; leave the kernel out with --kernels '!{}'",
                kernel, error.what(), kernel);
  }
}

}  // namespace ridgeline::cpu
