#pragma once

#include "ridgeline/plan/impl.h"

namespace ridgeline::cuda {

// Linear layers in pipelined tiles (tile/tile.h), for fp64, fp32, tf32 and fp32x3, sm_80 and newer.
Table tile_rows();
// Those of few outputs over long sums (tile/linear_split.h) in fp32, sm_90.
Table linear_split_rows();

}  // namespace ridgeline::cuda
