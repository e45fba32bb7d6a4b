#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

#include "ridgeline/plan/impl.h"

// In what order the steps of a captured graph run. A stream would make each wait for the one
// before; here a piece of work waits for those before it only where one of the two writes memory
// that the other uses. So gradients that nothing waits for run beside what comes next.
namespace ridgeline::cuda {

// Of a runtime's stream, and of what gives way to it.
constexpr int kStreamPriority = -1, kYieldingPriority = 0;

struct MemoryUse {
  const std::byte *begin, *end;
  bool written;
};
using MemoryUses = std::vector<MemoryUse>;

// Everything: a piece with this use runs alone.
MemoryUses all_memory();

// Of one capture. Work outside of pieces runs alone.
class GraphOrder {
 public:
  explicit GraphOrder(cudaStream_t stream) : stream_(stream) {}

  // What the stream captures from here on until leave(). `yields`: it gives way to other pieces
  // where both could run.
  void enter(const MemoryUses& uses);
  void leave(bool yields = false);

  size_t pieces() const { return count_; }  // captured so far

 private:
  using Nodes = std::vector<cudaGraphNode_t>;
  struct Piece {
    MemoryUses uses;
    Nodes last;                 // those that nothing of the piece follows
    std::vector<bool> follows;  // which pieces it comes after, those between included
  };

  Nodes captured() const;  // what the stream's next node would follow
  void lower_priority(const Nodes& last) const;
  void follow(Nodes nodes);
  void add(Piece piece, const Nodes& first);

  cudaStream_t stream_;
  std::vector<Piece> pieces_;  // since all that was captured was last followed at once
  size_t count_ = 0;
  Nodes open_;  // nodes that nothing follows yet
  Piece now_;
  Nodes before_;  // what the piece at hand follows
};

// A part of a step, with the values and the bytes of the workspace it uses.
struct StepPiece {
  struct Workspace {
    size_t begin, end;
    bool written;
  };
  Values reads, writes;  // plain ones; those the row skips do not count
  std::vector<Workspace> workspace;
  bool yields = false;  // nothing waits for it soon
  std::function<cudaError_t(cudaStream_t)> launch;
};

// A step of several pieces, each in its own place of the graph.
std::unique_ptr<Step> launch_pieces(const Binding& binding, std::string what,
                                    std::vector<StepPiece> pieces);
// A step of two, of which the second takes what the first leaves in `bytes` of the workspace.
std::unique_ptr<Step> launch_in_turn(const Binding& binding, std::string what, size_t bytes,
                                     StepPiece first, StepPiece second);

// The row with its steps in their place of a graph. `alone`: all that is captured before comes
// before, and all after comes after; for rows whose work uses memory that the program does not
// name.
Impl in_graph_order(Impl row, bool alone);

}  // namespace ridgeline::cuda
