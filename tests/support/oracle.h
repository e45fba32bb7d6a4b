#pragma once

#include "ridgeline/cpu/runtime.h"
#include "ridgeline/plan/kernel.h"
#include "tests/support/arrays.h"

namespace ridgeline::test {

// Runs ops by the reference kernels, one by one, on arrays of any float dtype: fp64 arrays make it
// the oracle, the program's own dtypes a model run with a rounding at every store.
class Reference {
 public:
  explicit Reference(int threads = 1);

  void run(const Program& program, size_t op, Arrays& arrays);
  void run(const Program& program, size_t begin, size_t end, Arrays& arrays) {
    for (size_t op = begin; op < end; ++op) run(program, op, arrays);
  }

 private:
  cpu::CpuRuntime runtime_;
  KernelTable table_;
};

// The whole program from these inputs, in fp64.
Arrays run_reference(const Program& program, const Arrays& inputs);

}  // namespace ridgeline::test
