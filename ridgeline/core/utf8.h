#pragma once

#include <cstddef>
#include <string_view>

namespace ridgeline {

// Returns the offset of the first byte that is not well-formed UTF-8 (overlong forms, surrogates
// and code points past U+10FFFF are not), or npos.
size_t find_invalid_utf8(std::string_view text);

// Returns the bytes of the character at the front of `text`, 1 to 4; 0 if it is not well-formed.
size_t utf8_length(std::string_view text);

}  // namespace ridgeline
