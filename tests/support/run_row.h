#pragma once

#include <string>

#include "ridgeline/plan/impl.h"
#include "tests/support/arrays.h"

namespace ridgeline::test {

// What one row made of a span.
struct RowResult {
  Arrays arrays;                       // every value after the run
  std::vector<std::string> overruns;   // values, or the workspace, written past their ends
  std::vector<std::string> converted;  // names of the conversion rows it needed
};

// Runs `row` on the ops from `begin` that `cover` names, through a Binding like a plan's: memory of
// the runtime with guard bytes around each value, skipped values and absent ones without memory,
// conversions (from `table`) for formats that are not plain. `steps` passes.
RowResult run_row(const Impl& row, const Cover& cover, const Program& program, size_t begin,
                  const Arrays& inputs, Runtime& runtime, const Table& table, int64_t steps = 1);

}  // namespace ridgeline::test
