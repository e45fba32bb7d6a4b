#pragma once

#include "ridgeline/plan/plan.h"

namespace ridgeline::prof {

// What the ops [begin, end) compute.
double span_flops(const Program& program, size_t begin, size_t end);

// The least that a kernel which computes the ops [begin, end) must move: the ops' own bytes, less
// what it can keep on chip. A weight or temporary read by several ops of the span is read once; one
// written and then read in it is not read back; a temporary that nothing reads after the span is
// not written.
double span_bytes(const Program& program, size_t begin, size_t end);

}  // namespace ridgeline::prof
