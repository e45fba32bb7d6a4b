#pragma once

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda {

inline constexpr const char* kPopulationKernel = "cuda.mlp_train.population";

// Perceptrons with one hidden layer, each on one cluster (population/train.h). The runs of a group
// share their launches.
KernelTable population_kernels();

}  // namespace ridgeline::cuda
