#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/core/error.h"

// A fuzz target reads its bytes like a user's file, request or argument. It may refuse them with an
// Error of one line; anything else is a fault: a crash, another exception, a sanitizer report.
namespace ridgeline::fuzz {

using Input = std::span<const uint8_t>;

inline std::string_view as_text(Input input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}
inline std::span<const std::byte> as_bytes(Input input) { return std::as_bytes(input); }

// All targets, by name.
using Run = void (*)(Input);
std::map<std::string, Run>& targets();

// The text cut at each `mark`, which is in none of the parts.
std::vector<std::string> split(std::string_view text, char mark);

// Ends the program with a message unless the condition holds.
void expect(bool holds, std::string_view what);

// Ends the program unless the message is a single line with some text.
void check_message(std::string_view message);

// Calls `read` and treats Errors as refusals, whose messages are checked.
template <typename F>
void refused_or_read(F&& read) {
  try {
    read();
  } catch (const Error& error) {
    check_message(error.what());
  }
}

// A file with these bytes, in a private folder of this process, for readers that take a path. There
// is one at a time, which the next call overwrites.
std::filesystem::path as_file(Input input, std::string_view name = "input");

}  // namespace ridgeline::fuzz

// FUZZ_TARGET(idx) { read(input); } defines a target with that name.
namespace ridgeline::fuzz {
struct Target {
  Target(const char* name, Run run) { targets()[name] = run; }
};
}  // namespace ridgeline::fuzz
#define FUZZ_TARGET(target)                                                      \
  static void run_##target(ridgeline::fuzz::Input);                              \
  static const ridgeline::fuzz::Target entry_of_##target(#target, run_##target); \
  static void run_##target([[maybe_unused]] ridgeline::fuzz::Input input)
