#pragma once

#include "ridgeline/plan/impl.h"

namespace ridgeline::cuda {

// Whole training steps of one hidden layer over bytes, in fp32 and fp64 (digits/digits.h).
Table mlp_digit_rows();

}  // namespace ridgeline::cuda
