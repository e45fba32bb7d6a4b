#pragma once

#include <map>
#include <string>

#include "tests/support/compare.h"

namespace ridgeline::test {

// How often each kernel was tried, by name.
using Exercised = std::map<std::string, int64_t>;

// Compares every kernel of the runtime's device with the oracle wherever it covers ops of the case.
// At each op, every kernel that covers ops from there on starts from what the reference kernels, in
// the program's own dtypes, have computed from the inputs so far.
void walk(const Case& c, const KernelTable& table, Runtime& runtime, Exercised& exercised);

// $RIDGELINE_TEST_CASES and $RIDGELINE_TEST_KERNELS select the cases and kernels whose names hold
// one of these words (separated by commas). A kernel that is not exercised is then no failure.
// walk() leaves out other kernels itself.
bool wanted(const Case& c);
bool wanted_kernel(const std::string& name);
bool all_wanted();

}  // namespace ridgeline::test
