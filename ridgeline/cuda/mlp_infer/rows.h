#pragma once

#include "ridgeline/plan/impl.h"

namespace ridgeline::cuda {

// "cuda.mlp_infer.rows16" ... "rows64": a perceptron forward, from the gather of bytes to
// probabilities, classes and tick, in one kernel (mlp_infer/mlp_infer.h); so many rows of the batch
// a cluster of blocks. bf16, fp16 and tf32 on sm_90.
Table mlp_infer_rows();

}  // namespace ridgeline::cuda
