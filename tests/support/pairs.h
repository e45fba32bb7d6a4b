#pragma once

#include <set>
#include <string>

#include "tests/support/walk.h"

namespace ridgeline::test {

// The kernels that wrote a value in a format that is not plain, and those that read one.
struct Handed {
  std::set<std::string> given_by, taken_by;
};

// Checks every two kernels of the runtime's device of which one reads, in a format that is not
// plain, what the other has written in one. The second kernel is given the very bytes that the
// first has left, or a conversion of them, and is compared with the oracle. Reference kernels
// compute the ops between the two. Forward and backward ops are treated alike.
void walk_pairs(const Case& c, const KernelTable& table, Runtime& runtime, Handed& handed);

// Adds the kernels that read or write values of the case in such formats, whichever kernel is on
// the other side.
void find_formatted(const Case& c, const KernelTable& table, Runtime& runtime, Handed& found);

}  // namespace ridgeline::test
