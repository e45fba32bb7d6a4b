#include "ridgeline/data/vocabulary.h"

#include <algorithm>
#include <utility>

#include "ridgeline/core/error.h"

namespace ridgeline::data {

std::string_view Vocabulary::paper() {
  return "abcdefghijklmnopqrstuvwxyz0123456789-,;.!?:'\"/\\|_@#$%^&*~`+-=<>()[]{}\n";
}

Vocabulary::Vocabulary(std::string symbols) : symbols_(std::move(symbols)) {
  if (symbols_.empty() || symbols_.size() > 254) {
    throw_error(ErrorKind::usage, "a vocabulary has 1 to 254 symbols, not {}", symbols_.size());
  }
  codes_.fill(uint8_t(symbols_.size()));
  for (size_t i = 0; i < symbols_.size(); ++i) {
    const auto symbol = uint8_t(symbols_[i]);
    if (symbol >= 0x80) {
      throw_error(ErrorKind::usage, "symbol {} of the vocabulary is not ASCII (byte {:#04x})",
                  i + 1, symbol);
    }
    codes_[symbol] = uint8_t(i);
  }
  // Capitals count as lower-case letters, unless listed themselves.
  for (char c = 'A'; c <= 'Z'; ++c) {
    if (codes_[uint8_t(c)] == symbols_.size()) codes_[uint8_t(c)] = codes_[uint8_t(c - 'A' + 'a')];
  }
}

void Vocabulary::encode(std::string_view text, bool backward, std::span<uint8_t> out) const {
  const size_t used = std::min(text.size(), out.size());
  if (backward) {
    for (size_t i = 0; i < used; ++i) out[i] = code(text[used - 1 - i]);
  } else {
    for (size_t i = 0; i < used; ++i) out[i] = code(text[i]);
  }
  std::fill(out.begin() + ptrdiff_t(used), out.end(), uint8_t(size()));
}

}  // namespace ridgeline::data
