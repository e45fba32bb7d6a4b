#include "ridgeline/core/utf8.h"

#include <cstdint>
#include <cstring>

namespace ridgeline {

size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? uint8_t(text[i]) : uint8_t{0}; };
  const auto follows = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return text.empty() ? 0 : 1;
  if (lead >= 0xc2 && lead <= 0xdf) return follows(1) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    const uint8_t least = lead == 0xe0 ? 0xa0 : 0x80, most = lead == 0xed ? 0x9f : 0xbf;
    return byte(1) >= least && byte(1) <= most && follows(2) ? 3 : 0;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    const uint8_t least = lead == 0xf0 ? 0x90 : 0x80, most = lead == 0xf4 ? 0x8f : 0xbf;
    return byte(1) >= least && byte(1) <= most && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

size_t find_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t eight;
    if (text.size() - at >= 8) {  // nearly all text is ASCII: eight bytes at once
      std::memcpy(&eight, text.data() + at, 8);
      if ((eight & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    if (uint8_t(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const size_t length = utf8_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::string_view::npos;
}

}  // namespace ridgeline
