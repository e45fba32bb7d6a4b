#pragma once

#include <span>
#include <string>
#include <string_view>

// Words of users and files in messages.
namespace ridgeline {

// Of `names` the one fewest edits away from `word`, or "" when none is near.
std::string nearest(std::string_view word, std::span<const std::string_view> names);

// `text` with what is no character of a line (line ends, NULs, a terminal's commands) as \x0a.
std::string printable(std::string_view text);

// A message as one line, whatever it holds: line ends as spaces, the rest printable.
std::string one_line(std::string text);

// 'text' in quotes, printable and cut short: what a file holds, fit for a message of one line.
std::string quote(std::string_view text);

}  // namespace ridgeline
