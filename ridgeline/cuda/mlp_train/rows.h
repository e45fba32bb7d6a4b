#pragma once

#include "ridgeline/plan/impl.h"

namespace ridgeline::cuda {

// "cuda.mlp_train.<how>": a whole program of training steps in one launch, in half precision.
Table mlp_train_rows();

}  // namespace ridgeline::cuda
