#pragma once

#include "ridgeline/plan/impl.h"

namespace ridgeline::cpu {

// Every row for the CPU, in the fixed order of preference: ours, the vendor's, the reference.
Table rows();

}  // namespace ridgeline::cpu
