#pragma once

#include "ridgeline/cpu/simd/split_product.h"
#include "ridgeline/plan/impl.h"

namespace ridgeline::cpu::simd {

// All the rows whose fp32 products are made by split_product.h, named for the engine. The table has
// them where split_engine() is one; tests make them by the portable engine too.
Table split_rows(const SplitEngine& engine);
// Its part.
Table recurrent_split_rows(const SplitEngine& engine);

}  // namespace ridgeline::cpu::simd
