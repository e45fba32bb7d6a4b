#pragma once

#include <cstddef>
#include <string_view>

namespace ridgeline::data {

// The offset of the first byte that is not well-formed UTF-8 (overlong forms, surrogates and code
// points past U+10FFFF are not), or npos.
size_t find_invalid_utf8(std::string_view text);

}  // namespace ridgeline::data
