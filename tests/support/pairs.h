#pragma once

#include <set>
#include <string>

#include "tests/support/walk.h"

namespace ridgeline::test {

// The rows that gave a value in a format that is not plain, and those that took one.
struct Handed {
  std::set<std::string> given_by, taken_by;
};

// Every two rows of the runtime's device of which one reads, in a format that is not plain, what
// the other has written in one: the second row is given the very bytes that the first has left, or
// what a conversion makes of them, and compared with the oracle. Ops between the two are the
// reference rows'. Forward and backward ops alike.
void walk_pairs(const Case& c, const Table& table, Runtime& runtime, Handed& handed);

// Adds the rows that read or write values of the case in such formats, whoever gives or takes them.
void find_formatted(const Case& c, const Table& table, Runtime& runtime, Handed& found);

}  // namespace ridgeline::test
