#pragma once

#include "ridgeline/cuda/half_product/half_product.h"

namespace ridgeline::cuda {

// The history of a product in fp16, each level adding one technique to the one before. The level
// after the last, software pipelining, is launch_half_product().
enum class ProductLevel {
  naive,         // a thread for each result, operands from memory
  block_tile,    // a block shares tiles of 16 x 16 in shared memory
  warp_tile,     // a block tile of 64 x 64, of which a warp has 16 x 32 and a thread 4 x 4 results
  tensor_cores,  // the block tile by mma.m16n8k8, 32 x 32 results a warp
  parallel_k,    // the warps of a block divide k and add up their sums
};

cudaError_t launch_product_level(const HalfProduct& product, ProductLevel level,
                                 cudaStream_t stream);

}  // namespace ridgeline::cuda
