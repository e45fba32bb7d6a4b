#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

inline constexpr const char* kPopulationKernel = "cuda.mlp_train.population";

// Perceptrons with one hidden layer, a cluster each (population/train.h). The launches of the runs
// of a group are made together.
KernelTable population_kernels();

}  // namespace ridgeline::cuda
