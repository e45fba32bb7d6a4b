#pragma once

#include <string>

#include "ridgeline/cuda/generate/schedule.h"
#include "ridgeline/cuda/runtime.h"
#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// Kernels that take a whole program and generate a GPU function for it
// (docs/internals/generator.md).
KernelTable generated_kernels();
// One of them, with its products as `tiles` says.
Kernel generated_kernel(std::string name, generate::Tiles tiles);

// The source of the GPU function that would be generated for a program; "" if none covers it.
std::string generated_source(const Program& program, const CudaRuntime& runtime,
                             generate::Tiles tiles = generate::Tiles::where_faster);

}  // namespace ridgeline::cuda
