#pragma once

#include <span>
#include <string>
#include <string_view>

// Formats text of users and files for messages.
namespace ridgeline {

// Returns the name that is the fewest edits away from `word`, or "" if none is near.
std::string nearest(std::string_view word, std::span<const std::string_view> names);

// Returns `text` with every byte that does not belong in a line written as \x0a: line ends, NULs,
// terminal control codes and invalid UTF-8.
std::string printable(std::string_view text);

// Returns a message as one line: line ends become spaces and the rest is printable. If it has more
// than 4096 bytes, the middle is left out.
std::string one_line(std::string text);

// Returns 'text' in quotes, printable and cut after about 120 bytes, so that what a file or a user
// wrote fits into a message of one line.
std::string quote(std::string_view text);

// Returns the words, printable and separated by commas. After about 400 bytes it says how many more
// there are.
std::string list_words(std::span<const std::string_view> words);
std::string list_words(std::span<const std::string> words);

}  // namespace ridgeline
