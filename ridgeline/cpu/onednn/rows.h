#pragma once

#include "ridgeline/plan/impl.h"

namespace ridgeline::cpu {

// Rows from oneDNN, fp32; none in a build without it.
Table onednn_rows();
Table onednn_recurrent_rows();

}  // namespace ridgeline::cpu
