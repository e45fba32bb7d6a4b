#pragma once

#include <string>

#include "ridgeline/cuda/runtime.h"
#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// Kernels that take a whole program and generate a GPU function for it
// (docs/internals/generator.md).
KernelTable generated_kernels();

// The source of the GPU function that would be generated for a program; "" if none covers it.
std::string generated_source(const Program& program, const CudaRuntime& runtime);

}  // namespace ridgeline::cuda
