#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ridgeline::serve {

// The element types of the Open Inference Protocol.
enum class Datatype : uint8_t {
  boolean,
  uint8,
  uint16,
  uint32,
  uint64,
  int8,
  int16,
  int32,
  int64,
  fp16,
  bf16,
  fp32,
  fp64,
  bytes,  // texts: each element has its own length
};

std::string_view name(Datatype type);  // "FP32"
std::optional<Datatype> parse_datatype(std::string_view text);
size_t size_of(Datatype type);             // of an element; 0 of bytes
bool is_whole(Datatype type);              // whole numbers, and no others
bool holds(Datatype type, int64_t value);  // whether a whole type has this number

// An input or output of a model as its metadata declares it.
struct TensorSpec {
  std::string name;
  Datatype type = Datatype::fp32;
  std::vector<int64_t> shape;  // samples first, as -1
  // Above 0: samples are sequences of 1 to this many timesteps, which shape[1] counts, as -1.
  int64_t most_timesteps = 0;

  // Numbers of a sample; of a sequence, the longest one.
  int64_t sample_elements() const {
    int64_t count = 1;
    for (size_t i = 1; i < shape.size(); ++i) {
      count *= i == 1 && most_timesteps > 0 ? most_timesteps : shape[i];
    }
    return count;
  }
};

std::string shape_text(const std::vector<int64_t>& shape);  // "[-1, 28, 28]"

}  // namespace ridgeline::serve
