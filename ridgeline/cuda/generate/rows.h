#pragma once

#include <string>

#include "ridgeline/cuda/runtime.h"
#include "ridgeline/plan/impl.h"

namespace ridgeline::cuda {

// Whole programs as kernels written for them (docs/internals/generator.md).
Table generated_rows();

// The kernel that such a row would be for a program; "" where none covers it.
std::string generated_source(const Program& program, const CudaRuntime& runtime);

}  // namespace ridgeline::cuda
