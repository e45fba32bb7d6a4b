#include "ridgeline/core/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace ridgeline {

std::string nearest(std::string_view word, std::span<const std::string_view> names) {
  // Edits are insertions, deletions, replacements and swaps of neighbours.
  const auto distance = [](std::string_view a, std::string_view b) {
    std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
    for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
    for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
      for (size_t j = 1; j <= b.size(); ++j) {
        d[i][j] =
            std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
        if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
          d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
        }
      }
    }
    return d[a.size()][b.size()];
  };
  std::string best;
  if (word.size() > 64) return best;  // no key is that long, and the table above is quadratic
  size_t least = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string_view name : names) {
    const size_t edits = distance(word, name);
    // All letters changed is no likeness.
    if (edits < least && edits < std::max(word.size(), name.size())) {
      least = edits;
      best = name;
    }
  }
  return best;
}

std::string printable(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      result += c;
    } else {
      result += fmt::format("\\x{:02x}", byte);
    }
  }
  return result;
}

std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return printable(text);
}

std::string quote(std::string_view text) {
  constexpr size_t kMost = 80;
  return fmt::format("'{}{}'", printable(text.substr(0, kMost)), text.size() > kMost ? "..." : "");
}

}  // namespace ridgeline
