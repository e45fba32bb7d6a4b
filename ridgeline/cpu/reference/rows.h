#pragma once

#include "ridgeline/plan/impl.h"

namespace ridgeline::cpu {

// One row an op, "cpu.<op>.reference", for every float dtype: plain loops that compute in double
// and round once, at the store. They are what every other row is compared with.
Table reference_rows();

}  // namespace ridgeline::cpu
