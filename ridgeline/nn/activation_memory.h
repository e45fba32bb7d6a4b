#pragma once

#include <vector>

#include "ridgeline/nn/lower.h"

namespace ridgeline::nn {

// Returns, for each layer, the bytes that its forward ops write and that ops after the loss read:
// the memory kept for the backward pass if every op is a kernel of its own. Kernels that cover
// several ops keep less.
std::vector<double> activation_bytes(const Lowered& lowered, size_t layers);

}  // namespace ridgeline::nn
