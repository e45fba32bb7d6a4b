#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/nn/safetensors.h"

namespace ridgeline::nn {

// One tensor as the JSON header states it; only the form is checked.
struct HeaderEntry {
  std::string name, dtype;
  std::vector<uint64_t> shape;
  uint64_t begin = 0, end = 0;
};

struct Header {
  Metadata metadata;
  std::vector<HeaderEntry> tensors;
};

// Reads the JSON event by event, so that depth and repeated keys are detected and no tree is built.
// Throws an Error(model) that begins with `origin`.
Header parse_header(std::string_view json, const std::string& origin);

}  // namespace ridgeline::nn
