#pragma once

#include "tests/support/walk.h"

namespace ridgeline::test {

// Whether a number that is not finite may also reach neighbours that the reference keeps finite:
// sums that share work, as in Winograd's transforms and in statistics of a whole batch, share it.
enum class Spread { allowed, none };

// Runs the kernels that cover the case's ops from the first on with infinities, or with very large
// numbers, in the first float value that the case reads. Wherever the reference kernels end with a
// number that is not finite, so must they; where it is finite, theirs is too, unless
// Spread::allowed. A case that reads no float value first is skipped.
void expect_not_finite(const Case& c, const KernelTable& table, Runtime& runtime,
                       Exercised& exercised, Spread spread);

// Runs them with zeros of both signs and with denormal numbers in that value: they agree with the
// oracle as for any other numbers.
void expect_small(const Case& c, const KernelTable& table, Runtime& runtime, Exercised& exercised);

}  // namespace ridgeline::test
