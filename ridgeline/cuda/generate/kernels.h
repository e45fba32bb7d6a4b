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
// For inference: they read the weights when they are prepared.
KernelTable generated_call_kernels();

// The source of the GPU function that would be generated for a program; "" if none covers it.
std::string generated_source(const Program& program, const CudaRuntime& runtime,
                             generate::Tiles tiles = generate::Tiles::where_faster);
// The same for reading, whatever the runtime is of: for an H200 where it is of no GPU. Throws
// Error(usage) with the reason where none is generated.
std::string readable_source(const Program& program, const Runtime& runtime);

// What compiles generated kernels: "NVRTC 13.0", or why there is nothing and what is lost.
std::string generator_support();

}  // namespace ridgeline::cuda
