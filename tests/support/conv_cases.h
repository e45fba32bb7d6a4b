#pragma once

#include <string>
#include <vector>

#include "tests/support/cases.h"

namespace ridgeline::test {

struct ConvCase {
  int64_t n;
  Conv2dShape shape;
};
struct PoolCase {
  int64_t n;
  PoolShape shape;
};

// The shapes of convolutions and pools in the table walk.
std::vector<ConvCase> conv_shapes();
std::vector<PoolCase> pool_shapes();
std::string to_string(const ConvCase& c);
std::string to_string(const PoolCase& c);

// The type in which normalisations keep mean and rstd.
DType statistics(DType dtype);

// Single ops on images, and spans that kernels like to fuse; part of op_cases and fused_cases.
std::vector<Case> conv_cases(DType dtype);
std::vector<Case> fused_conv_cases(DType dtype);
// Sums of many products, and convolutions in sequence.
std::vector<Case> long_conv_cases(DType dtype);
// Small networks in which convolutions, norms, activations and pools follow one another, with their
// backward passes: kernels pass values to each other in blocks of channels.
std::vector<Case> image_net_cases(DType dtype);

}  // namespace ridgeline::test
