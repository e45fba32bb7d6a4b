#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ridgeline::nn {

// Limits of a config. Recursive functions parse, copy and free its tree of tables, so the depth is
// bounded before it is parsed: it is at most the product of the two numbers below. Our configs have
// keys of up to four parts and nest three deep.
constexpr size_t kMostConfigBytes = size_t{4} << 20;
constexpr size_t kMostKeyParts = 16;
constexpr size_t kMostConfigNesting = 16;

struct ConfigExcess {
  size_t line = 1, column = 1;  // of its place in the text
  std::string what;
};

// Returns the first place where TOML text exceeds the limits, if any. Text that is not TOML may
// pass.
std::optional<ConfigExcess> find_excess(std::string_view text);

}  // namespace ridgeline::nn
