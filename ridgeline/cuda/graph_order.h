#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

#include "ridgeline/plan/kernel.h"

// Decides the order in which the steps of a captured graph run. In a stream, each step waits for
// the one before. Here a part of a step waits for an earlier part only if one of the two writes
// memory that the other uses. Gradients that nothing waits for can therefore run concurrently with
// the next steps.
namespace ridgeline::cuda {

// The priorities of the runtime's stream, and of the parts that yield to it.
constexpr int kStreamPriority = -1, kYieldingPriority = 0;

struct MemoryUse {
  const std::byte *begin, *end;
  bool written;
};
using MemoryUses = std::vector<MemoryUse>;

// All of memory: a part with this use runs alone.
MemoryUses all_memory();

// The order of one capture. Work that is captured outside of a part runs alone.
class GraphOrder {
 public:
  explicit GraphOrder(cudaStream_t stream) : stream_(stream) {}

  // The work captured between enter() and leave() is one part. `yields`: the part has a lower
  // priority than other parts that could run at the same time.
  void enter(const MemoryUses& uses);
  void leave(bool yields = false);

  size_t parts() const { return count_; }  // captured so far

 private:
  using Nodes = std::vector<cudaGraphNode_t>;
  struct Part {
    MemoryUses uses;
    Nodes last;                 // nodes that no node of the part follows
    std::vector<bool> follows;  // which parts it follows, directly or indirectly
  };

  Nodes captured() const;  // the nodes that the stream's next node would follow
  void lower_priority(const Nodes& last) const;
  void follow(Nodes nodes);
  void add(Part part, const Nodes& first);

  cudaStream_t stream_;
  std::vector<Part> parts_;  // since the last part that followed everything captured
  size_t count_ = 0;
  Nodes open_;  // nodes that nothing follows yet
  Part now_;
  Nodes before_;  // the nodes that the current part follows
};

// A part of a step, with the values and the workspace bytes it uses.
struct StepPart {
  struct Workspace {
    size_t begin, end;
    bool written;
  };
  Values reads, writes;  // in the plain format; values that the kernel skips do not count
  std::vector<Workspace> workspace;
  bool yields = false;  // no part waits for it soon
  std::function<cudaError_t(cudaStream_t)> launch;
};

// Makes a step of several parts, each with its own place in the graph.
std::unique_ptr<Step> launch_parts(const Binding& binding, std::string what,
                                   std::vector<StepPart> parts);
// Makes a step of two parts; the second reads what the first writes to `bytes` of the workspace.
std::unique_ptr<Step> launch_in_order(const Binding& binding, std::string what, size_t bytes,
                                      StepPart first, StepPart second);

// Returns the kernel with its steps placed in the graph. If a kernel's traits do not say
// `concurrent`, its steps follow everything captured before them and precede everything after.
Kernel in_graph_order(Kernel kernel);

}  // namespace ridgeline::cuda
