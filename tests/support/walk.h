#pragma once

#include <map>
#include <string>

#include "tests/support/compare.h"

namespace ridgeline::test {

// How often each row was tried, by name.
using Exercised = std::map<std::string, int64_t>;

// Every row of the runtime's device against the oracle, wherever it covers ops of the case: at each
// op every row that covers ops from there on starts from what the reference rows, in the program's
// own dtypes, have made of the inputs so far.
void walk(const Case& c, const Table& table, Runtime& runtime, Exercised& exercised);

// $RIDGELINE_TEST_CASES, $RIDGELINE_TEST_ROWS: only cases and rows whose name holds one of these
// words (commas between), to look again at a few; a row that is not exercised is then no failure.
// walk() leaves out such rows itself.
bool wanted(const Case& c);
bool wanted_row(const std::string& name);
bool all_wanted();

}  // namespace ridgeline::test
