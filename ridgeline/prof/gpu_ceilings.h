#pragma once

#include "ridgeline/plan/kernel.h"
#include "ridgeline/prof/ceilings.h"

namespace ridgeline::prof {

// Measures a GPU's ceilings: the rate of the best of `kernels` on a large product in fp32, tf32 and
// fp64, and of copies within its cache and beyond. Takes about a second.
Ceilings measure_gpu_ceilings(Runtime& runtime, const KernelTable& kernels);

// Reads `file`, else measures and keeps the result there. `again` measures anyway.
Ceilings gpu_ceilings_of(Runtime& runtime, const KernelTable& kernels,
                         const std::filesystem::path& file, bool again = false);

}  // namespace ridgeline::prof
