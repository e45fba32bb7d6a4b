#pragma once

#include <string>

#include "ridgeline/cuda/generate/schedule.h"
#include "ridgeline/cuda/runtime.h"
#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

// Kernels that cover a whole program and generate a GPU function for it
// (docs/internals/generator.md).
KernelTable generated_kernels();
// One of them, whose products are tiled as `tiles` states.
Kernel generated_kernel(std::string name, generate::Tiles tiles);
// For inference: these read the weights when they are prepared.
KernelTable generated_call_kernels();

// The source of the GPU function that would be generated for a program; "" if no kernel covers it.
std::string generated_source(const Program& program, const CudaRuntime& runtime,
                             generate::Tiles tiles = generate::Tiles::where_faster);
// Returns this source for people to read, on any runtime: without a GPU it is that for an H200.
// Throws Error(usage) with the reason if nothing would be generated.
std::string readable_source(const Program& program, const Runtime& runtime);

// What compiles generated functions: "NVRTC 13.0", or why it is missing and what that costs.
std::string generator_support();

}  // namespace ridgeline::cuda
