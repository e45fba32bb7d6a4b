#include "ridgeline/cuda/graph_order.h"

#include <algorithm>
#include <cstdint>

#include "ridgeline/cuda/error.h"
#include "ridgeline/cuda/runtime.h"

namespace ridgeline::cuda {
namespace {

bool conflict(const MemoryUses& a, const MemoryUses& b) {
  for (const MemoryUse& one : a) {
    for (const MemoryUse& other : b) {
      if ((one.written || other.written) && one.begin < other.end && other.begin < one.end) {
        return true;
      }
    }
  }
  return false;
}

void add_use(MemoryUses& uses, const void* data, size_t bytes, bool written) {
  if (data == nullptr || bytes == 0) return;
  const auto* begin = static_cast<const std::byte*>(data);
  uses.push_back({begin, begin + bytes, written});
}

size_t bytes_of(const Tensor& tensor, const Value& value, const std::vector<FormatUse>& formats) {
  for (const FormatUse& use : formats) {
    if (use.value == value.id) return std::max(use.bytes, tensor.bytes());
  }
  return tensor.bytes();
}

// The memory that the ops of a span read and write, and the kernel's workspace.
MemoryUses uses_of(const Span& span, const Binding& binding, const Cover& cover) {
  MemoryUses uses;
  for (size_t i = 0; i < span.size(); ++i) {
    for (const Value& value : reads(span.op(i))) {
      const Tensor tensor = binding.read(value);
      add_use(uses, tensor.data, bytes_of(tensor, value, cover.reads), false);
    }
    for (const Value& value : writes(span.op(i))) {
      const Tensor tensor = binding.write(value);
      add_use(uses, tensor.data, bytes_of(tensor, value, cover.writes), true);
    }
  }
  add_use(uses, binding.workspace(), cover.workspace, true);
  return uses;
}

// Runs a part at its place in the graph during a capture, and in stream order otherwise.
template <typename F>
void run_in_place(const CudaRuntime& runtime, const MemoryUses& uses, bool yields, F run) {
  GraphOrder* order = runtime.order();
  if (order == nullptr) return run();
  order->enter(uses);
  run();
  order->leave(yields);
}

// Edges of programmatic dependent launches carry data, which the query must accept too.
std::vector<cudaGraphNode_t> dependencies_of(cudaGraphNode_t node) {
  size_t count = 0;
  const auto get = [&](cudaGraphNode_t* nodes, cudaGraphEdgeData* edges) {
#if CUDART_VERSION >= 13000
    check(cudaGraphNodeGetDependencies(node, nodes, edges, &count), "a node of a graph");
#else
    check(cudaGraphNodeGetDependencies_v2(node, nodes, edges, &count), "a node of a graph");
#endif
  };
  get(nullptr, nullptr);
  std::vector<cudaGraphNode_t> nodes(count);
  std::vector<cudaGraphEdgeData> edges(count);
  if (count > 0) get(nodes.data(), edges.data());
  return nodes;
}

class PlacedStep final : public Step {
 public:
  PlacedStep(std::unique_ptr<Step> step, const CudaRuntime& runtime, MemoryUses uses)
      : step_(std::move(step)), runtime_(runtime), uses_(std::move(uses)) {}
  void run() override {
    run_in_place(runtime_, uses_, false, [this] { step_->run(); });
  }
  void run_many(int64_t count) override {
    run_in_place(runtime_, uses_, false, [&] { step_->run_many(count); });
  }
  std::string variant() const override { return step_->variant(); }

 private:
  std::unique_ptr<Step> step_;
  const CudaRuntime& runtime_;
  MemoryUses uses_;
};

class PartsStep final : public Step {
 public:
  struct Part {
    MemoryUses uses;
    bool yields;
    std::function<cudaError_t(cudaStream_t)> launch;
  };

  PartsStep(const CudaRuntime& runtime, std::string what, std::vector<Part> parts)
      : runtime_(runtime), what_(std::move(what)), parts_(std::move(parts)) {}
  void run() override {
    for (const Part& part : parts_) {
      run_in_place(runtime_, part.uses, part.yields,
                   [&] { check(part.launch(runtime_.stream()), what_); });
    }
  }

 private:
  const CudaRuntime& runtime_;
  std::string what_;
  std::vector<Part> parts_;
};

}  // namespace

MemoryUses all_memory() {
  return {{nullptr, reinterpret_cast<const std::byte*>(UINTPTR_MAX), true}};
}

GraphOrder::Nodes GraphOrder::captured() const {
  cudaStreamCaptureStatus status{};
  const cudaGraphNode_t* nodes = nullptr;
  size_t count = 0;
#if CUDART_VERSION >= 13000
  const cudaError_t error =
      cudaStreamGetCaptureInfo(stream_, &status, nullptr, nullptr, &nodes, nullptr, &count);
#else
  const cudaError_t error =
      cudaStreamGetCaptureInfo_v2(stream_, &status, nullptr, nullptr, &nodes, &count);
#endif
  check(error, "what a graph has captured");
  Nodes found(nodes, nodes + count);
  std::sort(found.begin(), found.end());
  return found;
}

void GraphOrder::follow(Nodes nodes) {
#if CUDART_VERSION >= 13000
  const cudaError_t error = cudaStreamUpdateCaptureDependencies(
      stream_, nodes.data(), nullptr, nodes.size(), cudaStreamSetCaptureDependencies);
#else
  const cudaError_t error = cudaStreamUpdateCaptureDependencies(stream_, nodes.data(), nodes.size(),
                                                                cudaStreamSetCaptureDependencies);
#endif
  check(error, "the order of a graph");
}

void GraphOrder::add(Part part, const Nodes& first) {
  std::erase_if(open_, [&](cudaGraphNode_t node) {
    return std::binary_search(first.begin(), first.end(), node);
  });
  open_.insert(open_.end(), part.last.begin(), part.last.end());
  std::sort(open_.begin(), open_.end());
  parts_.push_back(std::move(part));
}

void GraphOrder::enter(const MemoryUses& uses) {
  // Each part is compared with all parts before it. After this many, the next parts follow all of
  // them, so that the work stays linear in the number of parts.
  constexpr size_t kMostCompared = 2048;
  ++count_;
  if (parts_.size() >= kMostCompared) {
    parts_.clear();
    parts_.push_back({all_memory(), open_, {}});
  }
  if (Nodes nodes = captured(); nodes != open_) {  // work captured outside of parts
    Nodes first = open_;
    add({all_memory(), std::move(nodes), std::vector<bool>(parts_.size(), true)}, first);
  }
  now_ = {uses, {}, std::vector<bool>(parts_.size(), false)};
  before_.clear();
  for (size_t i = parts_.size(); i-- > 0;) {
    const Part& earlier = parts_[i];
    if (now_.follows[i] || !conflict(uses, earlier.uses)) continue;
    now_.follows[i] = true;
    for (size_t k = 0; k < earlier.follows.size(); ++k) {
      if (earlier.follows[k]) now_.follows[k] = true;
    }
    before_.insert(before_.end(), earlier.last.begin(), earlier.last.end());
  }
  std::sort(before_.begin(), before_.end());
  before_.erase(std::unique(before_.begin(), before_.end()), before_.end());
  follow(before_);
}

// Walks back over the kernel nodes of the current part, from its last nodes to those it follows.
void GraphOrder::lower_priority(const Nodes& last) const {
  for (const cudaGraphNode_t node : last) {
    if (std::binary_search(before_.begin(), before_.end(), node)) continue;
    cudaGraphNodeType type{};
    check(cudaGraphNodeGetType(node, &type), "a node of a graph");
    if (type == cudaGraphNodeTypeKernel) {
      cudaLaunchAttributeValue value{};
      value.priority = kYieldingPriority;
      check(cudaGraphKernelNodeSetAttribute(node, cudaLaunchAttributePriority, &value),
            "the priority of a kernel");
    }
    lower_priority(dependencies_of(node));
  }
}

void GraphOrder::leave(bool yields) {
  now_.last = captured();
  if (yields) lower_priority(now_.last);
  if (now_.last != before_) add(std::move(now_), before_);  // otherwise nothing was captured
  follow(open_);
}

std::unique_ptr<Step> launch_parts(const Binding& binding, std::string what,
                                   std::vector<StepPart> parts) {
  std::vector<PartsStep::Part> placed;
  for (StepPart& part : parts) {
    MemoryUses uses;
    for (const Value& value : part.reads) {
      const Tensor tensor = binding.read(value);
      add_use(uses, tensor.data, tensor.bytes(), false);
    }
    for (const Value& value : part.writes) {
      const Tensor tensor = binding.write(value);
      add_use(uses, tensor.data, tensor.bytes(), true);
    }
    for (const StepPart::Workspace& slice : part.workspace) {
      add_use(uses, binding.workspace() + slice.begin, slice.end - slice.begin, slice.written);
    }
    placed.push_back({std::move(uses), part.yields, std::move(part.launch)});
  }
  return std::make_unique<PartsStep>(cuda_runtime(binding.runtime()), std::move(what),
                                     std::move(placed));
}

std::unique_ptr<Step> launch_in_order(const Binding& binding, std::string what, size_t bytes,
                                      StepPart first, StepPart second) {
  first.workspace.push_back({0, bytes, true});
  second.workspace.push_back({0, bytes, false});
  return launch_parts(binding, std::move(what), {std::move(first), std::move(second)});
}

Kernel in_graph_order(Kernel kernel) {
  kernel.prepare = [concurrent = kernel.traits.concurrent, covers = kernel.covers,
                    prepare = std::move(kernel.prepare)](const Span& span, const Binding& binding) {
    std::unique_ptr<Step> step = prepare(span, binding);
    if (dynamic_cast<PartsStep*>(step.get()) != nullptr) return step;
    CudaRuntime& runtime = cuda_runtime(binding.runtime());
    MemoryUses uses = all_memory();
    if (concurrent && span.size() > 0) {
      uses = uses_of(span, binding, covers({span.program, span.begin, runtime}));
    }
    return std::unique_ptr<Step>(new PlacedStep(std::move(step), runtime, std::move(uses)));
  };
  return kernel;
}

}  // namespace ridgeline::cuda
