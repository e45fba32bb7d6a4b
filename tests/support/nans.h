#pragma once

#include "tests/support/walk.h"

namespace ridgeline::test {

// Runs the kernels that cover the case's ops from the first on with a NaN in the first float value
// that the case reads. Wherever the reference kernels have a NaN in the end, so must they. (They
// may have more: sums that share work share NaNs too.) A case that reads no float value first is
// left out.
void expect_nans(const Case& c, const KernelTable& table, Runtime& runtime, Exercised& exercised);

// Forward passes of linear and of recurrent layers for it: linear layers with their activations, of
// whole tiles and of less, and layers of every cell whose samples all have the same length.
std::vector<Case> layer_cases(DType dtype);

}  // namespace ridgeline::test
