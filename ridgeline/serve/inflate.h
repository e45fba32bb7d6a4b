#pragma once

#include <string>
#include <string_view>

namespace ridgeline::serve {

// Decompresses a body of gzip or zlib ("deflate"). Throws HttpError: 400 if it is damaged, 413 if
// it holds more than `most` bytes.
std::string inflate_body(std::string_view packed, size_t most);

// Whether an Accept-Encoding header accepts gzip.
bool accepts_gzip(std::string_view accepted);
// Compresses a body with gzip, at the fastest level.
std::string deflate_body(std::string_view plain);

}  // namespace ridgeline::serve
