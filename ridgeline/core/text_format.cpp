#include "ridgeline/core/text_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "ridgeline/core/utf8.h"

namespace ridgeline {
namespace {

// Returns where the character begins that byte `at` of `text` belongs to.
size_t character_at(std::string_view text, size_t at) {
  const size_t least = at < 3 ? 0 : at - 3;
  for (size_t begin = at; begin > least; --begin) {
    if ((static_cast<unsigned char>(text[begin]) & 0xc0) != 0x80) return begin;
  }
  return at;
}

}  // namespace

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
    // Names that share no letter are not alike.
    if (edits < least && edits < std::max(word.size(), name.size())) {
      least = edits;
      best = name;
    }
  }
  return best;
}

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const auto lead = static_cast<unsigned char>(text[0]);
    // U+0080 to U+009F, c2 80 to c2 9f, control a terminal as the bytes below 0x20 do.
    const bool command =
        lead < 0x20 || lead == 0x7f ||
        (lead == 0xc2 && length == 2 && static_cast<unsigned char>(text[1]) < 0xa0);
    const size_t taken = std::max<size_t>(1, length);
    for (const char c : text.substr(0, taken)) {
      if (length > 0 && !command) {
        result += c;
      } else {
        result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
      }
    }
    text.remove_prefix(taken);
  }
  return result;
}

std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  // A path alone may have 4096 bytes. The end of a message says what would help, so it is kept.
  constexpr size_t kMost = 4096, kEnd = 1024;
  if (text.size() <= kMost) return printable(text);
  const size_t front = character_at(text, kMost - kEnd),
               back = character_at(text, text.size() - kEnd);
  return fmt::format("{} ... ({} bytes left out) ... {}",
                     printable(std::string_view(text).substr(0, front)), back - front,
                     printable(std::string_view(text).substr(back)));
}

std::string quote(std::string_view text) {
  constexpr size_t kMost = 120;
  if (text.size() <= kMost) return fmt::format("'{}'", printable(text));
  return fmt::format("'{}...'", printable(text.substr(0, character_at(text, kMost))));
}

std::string list_words(std::span<const std::string_view> words) {
  constexpr size_t kMost = 400;
  std::string list;
  for (size_t i = 0; i < words.size(); ++i) {
    if (list.size() > kMost) return fmt::format("{} and {} more", list, words.size() - i);
    if (i > 0) list += ", ";
    const std::string quoted = quote(words[i]);
    list += quoted.substr(1, quoted.size() - 2);
  }
  return list;
}

std::string list_words(std::span<const std::string> words) {
  const std::vector<std::string_view> views(words.begin(), words.end());
  return list_words(std::span<const std::string_view>(views));
}

}  // namespace ridgeline
