#pragma once

#include <vector>

#include "ridgeline/nn/lower.h"

namespace ridgeline::nn {

// Bytes of what each layer's forward ops write and ops behind the loss read, by layer: what is kept
// for the backward pass if every op is a kernel of its own. Kernels that cover several ops keep
// less.
std::vector<double> activation_bytes(const Lowered& lowered, size_t layers);

}  // namespace ridgeline::nn
