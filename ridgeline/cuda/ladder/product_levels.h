#pragma once

#include "ridgeline/cuda/half_product/half_product.h"

namespace ridgeline::cuda {

// The development of an fp16 product; each level adds one technique to the previous level. The
// level after the last, software pipelining, is launch_half_product().
enum class ProductLevel {
  naive,         // one thread per result, operands from global memory
  block_tile,    // a block shares tiles of 16 x 16 in shared memory
  warp_tile,     // a block tile of 64 x 64; a warp has 16 x 32 and a thread 4 x 4 results
  tensor_cores,  // the block tile by mma.m16n8k8, with 32 x 32 results per warp
  parallel_k,    // the warps of a block split k and add their sums
};

cudaError_t launch_product_level(const HalfProduct& product, ProductLevel level,
                                 cudaStream_t stream);

}  // namespace ridgeline::cuda
