#include "ridgeline/serve/tokens.h"

#include <algorithm>
#include <cstdint>

#include "ridgeline/core/error.h"
#include "ridgeline/core/file.h"

namespace ridgeline::serve {
namespace {

constexpr size_t kMostFile = size_t{1} << 20;

// Compares every byte, also after a difference.
bool equal(std::string_view given, std::string_view token) {
  uint32_t difference = given.size() == token.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    difference |= uint32_t(uint8_t(given[i]) ^ uint8_t(token[i % token.size()]));
  }
  return difference == 0;
}

}  // namespace

Tokens Tokens::read(const std::filesystem::path& file) {
  const std::string text = read_text_file(file, ErrorKind::io, kMostFile);
  Tokens result;
  int number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.front() == '#') continue;
    if (!std::ranges::all_of(line, [](char c) { return c > ' ' && c < 0x7f; })) {
      throw_error(ErrorKind::usage, "{}: line {}: a token has no blanks and only ASCII characters",
                  file.string(), number);
    }
    result.tokens_.push_back(std::move(line));
  }
  if (result.tokens_.empty()) {
    throw_error(ErrorKind::usage, "{}: holds no token; put one in a line of its own",
                file.string());
  }
  return result;
}

bool Tokens::accept(std::string_view authorization) const {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() <= kScheme.size()) return false;
  for (size_t i = 0; i < kScheme.size(); ++i) {
    const char c = authorization[i];
    if ((c >= 'A' && c <= 'Z' ? char(c + 32) : c) != kScheme[i]) return false;
  }
  const std::string_view given = authorization.substr(kScheme.size());
  bool found = false;
  for (const std::string& token : tokens_) found |= equal(given, token);
  return found;
}

}  // namespace ridgeline::serve
