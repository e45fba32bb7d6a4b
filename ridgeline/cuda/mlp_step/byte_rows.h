#pragma once

#include "ridgeline/plan/impl.h"

namespace ridgeline::cuda {

// Whole training steps of nets with one hidden layer over bytes, in tf32 and fp32x3, by bf16 tensor
// cores (byte_products.h).
Table mlp_byte_rows();

}  // namespace ridgeline::cuda
