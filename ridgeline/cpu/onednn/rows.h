#pragma once

#include "ridgeline/plan/impl.h"

namespace ridgeline::cpu {

// Rows from oneDNN, fp32; none in a build without it.
Table onednn_rows();
Table onednn_recurrent_rows();

// Each family's rows, one file a family.
Table onednn_linear_rows();
Table onednn_conv_rows();
Table onednn_pool_rows();
Table onednn_norm_rows();

}  // namespace ridgeline::cpu
