#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// Linear layers in pipelined tiles (tile/tile.h), for fp64, fp32, tf32 and fp32x3, sm_80 and newer.
KernelTable tile_kernels();
// Linear layers with few outputs over long sums (tile/linear_split.h) in fp32, sm_90.
KernelTable linear_split_kernels();

}  // namespace ridgeline::cuda
