#pragma once

#include "tests/support/walk.h"

namespace ridgeline::test {

// Runs the kernels that cover the case's ops from the first on with a NaN in the first float value
// that the case reads. Wherever the reference kernels end with a NaN, so must they. (They may have
// more: sums that share work also share NaNs.) A case that reads no float value first is skipped.
void expect_nans(const Case& c, const KernelTable& table, Runtime& runtime, Exercised& exercised);

// Forward passes of linear and of recurrent layers for this test: linear layers with their
// activations, with whole and partial tiles, and layers of every cell whose samples all have the
// same length.
std::vector<Case> layer_cases(DType dtype);

}  // namespace ridgeline::test
