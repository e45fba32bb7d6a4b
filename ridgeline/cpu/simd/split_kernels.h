#pragma once

#include "ridgeline/cpu/simd/split_product.h"
#include "ridgeline/plan/kernel.h"

namespace ridgeline::cpu::simd {

// All kernels whose fp32 products use split_product.h, named after the engine. The table has them
// if split_engine() is not null; tests also make them with the portable engine.
KernelTable split_kernels(const SplitEngine& engine);
// Its parts: whole training steps of perceptrons, and recurrent layers.
KernelTable mlp_split_kernels(const SplitEngine& engine);
KernelTable recurrent_split_kernels(const SplitEngine& engine);

}  // namespace ridgeline::cpu::simd
