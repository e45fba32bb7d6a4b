#pragma once

#include "tests/support/cases.h"
#include "tests/support/walk.h"

namespace ridgeline::test {

// Whether a case has recurrent layers whose items have lengths of their own.
bool has_padding(const Case& c);

// What lies behind an item's last step, and the states of an item without steps, enter no result:
// with NaNs or infinities there every row of the runtime's device gives the same numbers as with
// zeros, wherever it covers ops of the case.
void expect_no_padding(const Case& c, const Table& table, Runtime& runtime, Exercised& exercised);

}  // namespace ridgeline::test
