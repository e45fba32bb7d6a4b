#pragma once

#include <string>
#include <string_view>

namespace ridgeline::serve {

// What a body of gzip or zlib ("deflate") holds. Throws HttpError: 400 if it is damaged, 413 if it
// holds more than `most` bytes.
std::string inflate_body(std::string_view packed, size_t most);

// Whether a header Accept-Encoding takes gzip.
bool accepts_gzip(std::string_view accepted);
// The gzip of a body, fast rather than small.
std::string deflate_body(std::string_view plain);

}  // namespace ridgeline::serve
