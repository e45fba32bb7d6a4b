#pragma once

#include <string>

#include "ridgeline/plan/kernel.h"
#include "tests/support/arrays.h"
#include "tests/support/kernel_memory.h"

namespace ridgeline::test {

// The result of one kernel on a span.
struct KernelResult {
  Arrays arrays;                           // every value after the run
  std::vector<std::string> overruns;       // values, or the workspace, written past their ends
  std::vector<std::string> converted;      // names of the conversion kernels it needed
  std::vector<std::string> format_faults;  // violations of the contract of padding (plan/padding.h)
  Formatted formatted;                     // what it wrote in formats that are not plain
};

// Runs `kernel` on the ops from `begin` that `cover` names, through a Binding like a plan's: memory
// of the runtime with guard bytes around each value, no memory for skipped and absent values, and
// conversions (from `table`) for formats that are not plain. Makes `steps` passes. A value that it
// reads in such a format is taken from `given`, where another kernel wrote it in that format, or
// converted from another format there, or converted from the plain inputs.
KernelResult run_kernel(const Kernel& kernel, const Cover& cover, const Program& program,
                        size_t begin, const Arrays& inputs, Runtime& runtime,
                        const KernelTable& table, int64_t steps = 1, const Formatted& given = {});

}  // namespace ridgeline::test
