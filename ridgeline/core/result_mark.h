#pragma once

#include <string>
#include <string_view>

// JSON files of all programs begin alike, and so do SVG files. Our result files therefore carry a
// mark, by which a later run recognises results that it may replace.
namespace ridgeline {

// Returns the text with the mark of JSON or SVG added; text of any other kind is unchanged.
std::string with_mark(std::string text);

// `head` is the beginning of a file.
bool has_json_mark(std::string_view head);
bool has_svg_mark(std::string_view head);

}  // namespace ridgeline
