#pragma once

#include <cstdint>
#include <span>

namespace ridgeline::data {

// x = byte * scale + shift
struct Scaling {
  float scale = 1.0f;
  float shift = 0.0f;

  float operator()(uint8_t byte) const { return float(byte) * scale + shift; }
  bool operator==(const Scaling&) const = default;
};

enum class ScaleKind {
  raw,       // 0 to 255
  unit,      // 0 to 1
  standard,  // mean 0 and deviation 1 over all bytes of the set
};

// `bytes` are the training images. Mean and deviation come from exact integer sums, so they are the
// same on every machine. Throws Error(data) if all bytes are equal and the kind is standard.
Scaling make_scaling(ScaleKind kind, std::span<const uint8_t> bytes);

}  // namespace ridgeline::data
