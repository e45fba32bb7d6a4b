#pragma once

#include <string_view>

namespace ridgeline::nn {

// What training lowers; both are means over the global batch (mse over the outputs as well).
enum class Loss { cross_entropy, mse };

std::string_view name(Loss loss);        // "cross-entropy", "mse"
Loss parse_loss(std::string_view text);  // throws usage

}  // namespace ridgeline::nn
