#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ridgeline {

// Returns the document as text, on one line if `indent` is negative. File names need not be UTF-8,
// but JSON is: invalid bytes become U+FFFD.
std::string dump_json(const nlohmann::json& document, int indent);

// Parses `text`. The result is "discarded" (is_discarded()) if the text is not JSON or nests deeper
// than any document of ours: the values of a small, deeply nested file take a hundred times its
// size.
nlohmann::json parse_json(std::string_view text);

// Returns whether arrays and objects of this JSON text nest deeper than `most`. Checks nothing
// else.
bool nests_deeper(std::string_view text, int most);

}  // namespace ridgeline
