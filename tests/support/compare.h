#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/bounds.h"
#include "tests/support/cases.h"
#include "tests/support/run_kernel.h"

namespace ridgeline::test {

// Whether each element of `got` is within its bound of `want`. An element that the oracle does not
// write (NaN: the losses of other steps) must stay unwritten. The message names the worst element
// and its error in bounds.
testing::AssertionResult within(const std::vector<double>& got, const std::vector<double>& want,
                                const std::vector<double>& bound);

// Whether `kernel`, which covers the ops of `cover` from `begin` on, computes what the oracle does
// from `start` (in the program's own dtypes), touches nothing else, stays inside its memory and
// keeps the contract of padding. `given` is as for run_kernel().
testing::AssertionResult agrees(const Kernel& kernel, const Cover& cover, const Program& program,
                                size_t begin, const Arrays& start, Runtime& runtime,
                                const KernelTable& table, int64_t steps = 1,
                                const Formatted& given = {});

}  // namespace ridgeline::test
