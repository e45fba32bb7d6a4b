#pragma once

#include <cstdint>
#include <string>

#include "ridgeline/core/tensor.h"
#include "ridgeline/nn/config_table.h"

namespace ridgeline::nn {

enum class InitKind {
  standard,  // PyTorch's nn.Linear: U(-1/sqrt(in), 1/sqrt(in)), weight and bias alike
  zeros,
  ones,
  normal,   // N(0, std^2)
  uniform,  // U(-bound, bound)
  xavier,   // variance 2 / (in + out)
  he,       // variance 2 / in: PyTorch's kaiming for relu, fan_in
};

enum class Distribution { uniform, normal };  // of xavier and he

// The number of inputs that an output sums, and of outputs that an input feeds. A bias has those of
// the weight it belongs to.
struct Fans {
  int64_t in = 1, out = 1;
};

struct Init {
  InitKind kind = InitKind::standard;
  double parameter = 0;  // std of normal, bound of uniform
  Distribution distribution = Distribution::uniform;
  double mean = 0;  // of normal

  bool operator==(const Init&) const = default;
};

// Writes every element of `value` (host, fp64 or fp32) as a function of the seed, the parameter's
// number and the element; fp32 gets the fp64 numbers rounded.
void fill(const Init& init, const Fans& fans, uint64_t seed, uint64_t param, const Tensor& value);

// init = "he" or init = { type = "normal", std = 0.01 }
Init read_init(ConfigTable& parent, const std::string& key);
std::string to_toml(const Init& init);  // { type = "normal", std = 0.01 }

}  // namespace ridgeline::nn
