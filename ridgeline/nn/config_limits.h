#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ridgeline::nn {

// What a config may be at most. A tree of tables is parsed, copied and freed by functions that call
// themselves, so its depth is bounded before it is parsed: it is at most the product of the two
// numbers below. Configs of ours have keys of up to four parts and nest three deep.
constexpr size_t kMostConfigBytes = size_t{4} << 20;
constexpr size_t kMostKeyParts = 16;
constexpr size_t kMostConfigNesting = 16;

struct ConfigExcess {
  size_t line = 1, column = 1;  // of its place in the text
  std::string what;
};

// The first place where TOML text goes beyond the limits, or none. Text that is no TOML may pass.
std::optional<ConfigExcess> find_excess(std::string_view text);

}  // namespace ridgeline::nn
