#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ridgeline {

// The document as text; an indent below 0 is all on one line. Names of files need not be UTF-8,
// which JSON is: bytes that are not become U+FFFD.
std::string dump_json(const nlohmann::json& document, int indent);

// The document that `text` is. "Discarded" (is_discarded()) when it is none, or when it nests
// deeper than any of ours: values of a small file that nests deeply take a hundred times its size.
nlohmann::json parse_json(std::string_view text);

// Whether arrays and objects of this JSON text nest deeper than `most`. Nothing else is checked.
bool nests_deeper(std::string_view text, int most);

}  // namespace ridgeline
