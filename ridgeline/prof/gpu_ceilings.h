#pragma once

#include <functional>

#include "ridgeline/plan/kernel.h"
#include "ridgeline/prof/ceilings.h"

namespace ridgeline::prof {

// to[0..bytes) = from[0..bytes) on the GPU; of no bytes a kernel that does nothing
using GpuCopy = std::function<void(void* to, const void* from, size_t bytes)>;

// Bytes a second between the host's pinned memory and the GPU, to it or back.
using HostRate = std::function<double(bool to_gpu)>;

// A GPU's ceilings: the rate of the best of `kernels` on a large product in fp32, tf32 and fp64,
// and of copies within its cache and beyond. Takes about a second.
Ceilings measure_gpu_ceilings(Runtime& runtime, const KernelTable& kernels, const GpuCopy& copy,
                              const HostRate& host);

// From `file`, else measured and kept there. `again` measures anyway.
Ceilings gpu_ceilings_of(Runtime& runtime, const KernelTable& kernels, const GpuCopy& copy,
                         const HostRate& host, const std::filesystem::path& file,
                         bool again = false);

}  // namespace ridgeline::prof
