#pragma once

#include "tests/support/cases.h"
#include "tests/support/walk.h"

namespace ridgeline::test {

// Whether a case has recurrent layers whose samples have different lengths.
bool has_padding(const Case& c);

// Checks that values after a sample's last timestep, and the states of a sample without timesteps,
// enter no result: with NaNs or infinities there, every kernel of the runtime's device gives the
// same numbers as with zeros, wherever it covers ops of the case.
void expect_no_padding(const Case& c, const KernelTable& table, Runtime& runtime,
                       Exercised& exercised);

}  // namespace ridgeline::test
