#pragma once

#include "ridgeline/plan/plan.h"

namespace ridgeline::prof {

// The flops of the ops [begin, end).
double span_flops(const Program& program, size_t begin, size_t end);

// The least bytes that a kernel for the ops [begin, end) must move: the ops' own bytes, minus what
// it can keep on chip. A weight or temporary read by several ops of the span is read once; one
// written and then read in it is not read back; a temporary that nothing reads after the span is
// not written.
double span_bytes(const Program& program, size_t begin, size_t end);

}  // namespace ridgeline::prof
