#pragma once

#include <string_view>

namespace ridgeline::serve {

// Files of this folder, embedded in the binary.
extern const std::string_view kPage;     // page.html
extern const std::string_view kOpenApi;  // openapi.json

}  // namespace ridgeline::serve
