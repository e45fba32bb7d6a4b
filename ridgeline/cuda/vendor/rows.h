#pragma once

#include "ridgeline/plan/impl.h"

namespace ridgeline::cuda {

// "cuda.<op>.cublaslt.<i>": the library's i-th proposal for each product, so that the planner times
// them. Refused with the reason where the library is absent or has no such proposal.
Table cublaslt_rows();

}  // namespace ridgeline::cuda
