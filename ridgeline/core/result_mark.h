#pragma once

#include <string>
#include <string_view>

// JSON of any program begins alike, and so do pictures. Files of results therefore carry a mark by
// which a later run knows them as results that it may replace.
namespace ridgeline {

// The text with the mark of JSON or of SVG, whichever it is; text of another kind as it is.
std::string with_mark(std::string text);

// Of the beginning of a file.
bool has_json_mark(std::string_view head);
bool has_svg_mark(std::string_view head);

}  // namespace ridgeline
