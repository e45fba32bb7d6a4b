#pragma once

#include "ridgeline/plan/impl.h"

namespace ridgeline::cpu {

// Our own rows, fp32 and fp64, on vectors of whatever width the machine has.
Table simd_rows();

}  // namespace ridgeline::cpu
