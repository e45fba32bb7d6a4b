#pragma once

#include <functional>
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

// Expects of every kernel whose traits promise something in this precision on this device that some
// case exercised it. Of libraries that the machine lacks (`lacks`) nothing is promised.
void expect_exercised(
    const KernelTable& table, Precision precision, const Runtime& runtime,
    const Exercised& exercised,
    const std::function<bool(Library)>& lacks = [](Library) { return false; });

// $RIDGELINE_TEST_CASES and $RIDGELINE_TEST_KERNELS select the cases and kernels whose names hold
// one of these words (separated by commas). A kernel that is not exercised is then no failure.
// walk() leaves out other kernels itself. $RIDGELINE_TEST_TIMES is how often walk() tries a kernel
// at most: under a checker that takes a hundred times as long, once or twice must do.
bool wanted(const Case& c);
bool wanted_kernel(const std::string& name);
bool all_wanted();

}  // namespace ridgeline::test
