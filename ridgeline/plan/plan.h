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
  // The following are set for conversions only.
  ValueId converted = -1;
  Format from, to;
  size_t to_bytes = 0, from_bytes = 0;
};

using Choices = std::vector<Choice>;

// Memory of the values that come from outside (inputs, parameters, state, outputs), by id.
using Externals = std::unordered_map<ValueId, Tensor>;

// Memory of a plan.
struct MemoryUse {
  size_t arena = 0;      // bytes of the plan's one allocation
  size_t peak_live = 0;  // the most that lives at once: the arena cannot be smaller
  size_t sum = 0;        // bytes without reuse
};

// The chosen kernels, prepared and bound to one arena. Running it allocates nothing and decides
// nothing.
class Plan {
 public:
  // `program` is copied; external memory must outlive the plan.
  Plan(Runtime& runtime, Program program, Choices choices, const Externals& externals);
  ~Plan();
  Plan(Plan&&) noexcept;
  Plan& operator=(Plan&&) noexcept;

  // Makes `steps` passes over the program, 1 <= steps <= program().repeats. The caller has put the
  // inputs of these steps in place and set tick to 0. It is asynchronous on a GPU, except for
  // kernels that run between graphs.
  void run(int64_t steps = 1);

  // Makes one pass over the choice with this index alone, for profilers and debuggers.
  void run_choice(size_t index);

  const Program& program() const;
  const Choices& choices() const;
  // The name of a choice's kernel, with the variant that it launches here, if it has several.
  std::string label(size_t index) const;
  const MemoryUse& memory() const;
  Runtime& runtime() const;

  // Returns a temporary's memory in plain format while the step that wrote it is the last one run,
  // for debugging (which layer became NaN). The data is null if the plan never stores it.
  Tensor peek(ValueId id) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace ridgeline
