#include "ridgeline/nn/config_limits.h"

#include <fmt/format.h>

#include <algorithm>

namespace ridgeline::nn {
namespace {

// Returns the end of the string whose opening quote is at `begin`: after its closing quote, or the
// end of the text. Three quotes open a string of several lines; any other ends with its line.
size_t string_end(std::string_view text, size_t begin) {
  const char quote = text[begin];
  const bool escapes = quote == '"';
  const bool lines = text.substr(begin, 3) == std::string(3, quote);
  const std::string_view closing(&text[begin], lines ? 3 : 1);
  for (size_t i = begin + closing.size(); i < text.size(); ++i) {
    if (escapes && text[i] == '\\') {
      ++i;
    } else if (!lines && text[i] == '\n') {
      return i;
    } else if (text.substr(i, closing.size()) == closing) {
      return i + closing.size();
    }
  }
  return text.size();
}

}  // namespace

std::optional<ConfigExcess> find_excess(std::string_view text) {
  if (text.size() > kMostConfigBytes) {
    return ConfigExcess{
        1, 1, fmt::format("has {} bytes; a config has at most {}", text.size(), kMostConfigBytes)};
  }
  size_t line = 1, line_begin = 0, depth = 0, parts = 1;
  const auto excess = [&](size_t at, const char* what, size_t most) {
    return ConfigExcess{line, at - line_begin + 1, fmt::format("{} {}", what, most)};
  };
  for (size_t i = 0; i < text.size();) {
    switch (text[i]) {
      case '"':
      case '\'': {
        const size_t end = string_end(text, i);
        for (; i < end; ++i) {
          if (text[i] == '\n') ++line, line_begin = i + 1;
        }
        continue;
      }
      case '#':
        i = std::min(text.find('\n', i), text.size());
        continue;
      case '\n':
        ++line, line_begin = i + 1;
        parts = 1;
        break;
      case '.':
        if (++parts > kMostKeyParts) {
          return excess(i, "has a key of too many parts; the most is", kMostKeyParts);
        }
        break;
      case '[':
      case '{':
        parts = 1;
        if (++depth > kMostConfigNesting) {
          return excess(i, "nests arrays and tables too deep; the most is", kMostConfigNesting);
        }
        break;
      case ']':
      case '}':
        depth -= depth > 0 ? 1 : 0;
        parts = 1;
        break;
      case '=':
      case ',':
        parts = 1;
        break;
      default:
        break;
    }
    ++i;
  }
  return std::nullopt;
}

}  // namespace ridgeline::nn
