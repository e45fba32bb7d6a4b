#pragma once

#include <span>
#include <string>
#include <string_view>

// Words of users and files in messages.
namespace ridgeline {

// Of `names` the one fewest edits away from `word`, or "" when none is near.
std::string nearest(std::string_view word, std::span<const std::string_view> names);

// `text` with every byte that is no character of a line as \x0a: line ends, NULs, a terminal's
// commands, and what is not UTF-8.
std::string printable(std::string_view text);

// A message as one line, whatever it holds: line ends as spaces, the rest printable. Of more than
// 4096 bytes the middle is left out.
std::string one_line(std::string text);

// 'text' in quotes, printable and cut after about 120 bytes: what a file or a user wrote, fit for a
// message of one line.
std::string quote(std::string_view text);

// The words printable and separated by commas; how many more there are after about 400 bytes.
std::string list_words(std::span<const std::string_view> words);
std::string list_words(std::span<const std::string> words);

}  // namespace ridgeline
