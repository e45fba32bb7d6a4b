#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ridgeline {

// "0 kernels", "1 kernel", "2 kernels". `nouns` is for words that take more than an s.
inline std::string counted(int64_t count, std::string_view noun, std::string_view nouns = {}) {
  std::string text = std::to_string(count) + " ";
  if (count == 1) return text += noun;
  return nouns.empty() ? text.append(noun).append("s") : text.append(nouns);
}

// Returns `text` without spaces and tabs at its ends.
inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

}  // namespace ridgeline
