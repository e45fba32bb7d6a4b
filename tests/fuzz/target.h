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

// A fuzz target reads the bytes it is given as a user's file, request or argument would be read. It
// may refuse them with an Error of one line; anything else that leaves it is a fault: a crash,
// another exception, a report of a sanitizer.
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

// Ends the program unless it holds, with what was expected.
void expect(bool holds, std::string_view what);

// Ends the program unless the message is one line that says something.
void check_message(std::string_view message);

// Calls `read` and takes the Errors that it throws for refusals, whose messages are checked.
template <typename F>
void refused_or_read(F&& read) {
  try {
    read();
  } catch (const Error& error) {
    check_message(error.what());
  }
}

// A file with these bytes, in a folder of this process alone, for readers that take a path. There
// is one at a time, and it is overwritten by the next.
std::filesystem::path as_file(Input input, std::string_view name = "input");

}  // namespace ridgeline::fuzz

// FUZZ_TARGET(idx) { read(input); } makes a target that is known by its name.
namespace ridgeline::fuzz {
struct Target {
  Target(const char* name, Run run) { targets()[name] = run; }
};
}  // namespace ridgeline::fuzz
#define FUZZ_TARGET(target)                                             \
  static void run(ridgeline::fuzz::Input);                              \
  static const ridgeline::fuzz::Target entry_of_##target(#target, run); \
  static void run([[maybe_unused]] ridgeline::fuzz::Input input)
