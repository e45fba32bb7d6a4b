#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "ridgeline/plan/kernel.h"

namespace ridgeline {

// One chosen kernel and the ops it covers; a conversion covers none.
struct Choice {
  const Kernel* kernel = nullptr;
  size_t begin = 0, end = 0;
  Cover cover;
  double seconds = 0;  // as measured alone; 0 when not measured
  // Conversions only:
  ValueId converted = -1;
  Format from, to;
  size_t to_bytes = 0, from_bytes = 0;
};

using Choices = std::vector<Choice>;

// Memory of the values that come from outside (inputs, parameters, state, outputs), by id.
using Externals = std::unordered_map<ValueId, Tensor>;

// What lives where, and what it costs.
struct MemoryUse {
  size_t arena = 0;      // bytes of the plan's one allocation
  size_t peak_live = 0;  // the most that lives at once: the arena cannot be smaller
  size_t sum = 0;        // what it would take without reuse
};

// The chosen kernels, prepared and bound to one arena. Running touches no allocator and decides
// nothing.
class Plan {
 public:
  // `program` is copied; external memory must outlive the plan.
  Plan(Runtime& runtime, Program program, Choices choices, const Externals& externals);
  ~Plan();
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;

  // Makes `steps` passes over the program, 1 <= steps <= program().repeats. The caller has put the
  // inputs of these steps in place and set tick to 0. Asynchronous on a GPU, but for what kernels
  // that run between graphs wait for.
  void run(int64_t steps = 1);

  // One pass over the choice with this index alone, for profilers and debuggers.
  void run_choice(size_t index);

  const Program& program() const;
  const Choices& choices() const;
  // The name of the kernel of a choice, with the variant that it launches here, if it has several.
  std::string label(size_t index) const;
  const MemoryUse& memory() const;
  Runtime& runtime() const;

  // A temporary's memory in plain format while the step that wrote it is the last one run, for
  // debugging (which layer went NaN); null data when the plan never stores it.
  Tensor peek(ValueId id) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace ridgeline
