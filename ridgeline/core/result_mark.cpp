#include "ridgeline/core/result_mark.h"

#include <algorithm>

namespace ridgeline {
namespace {

constexpr std::string_view kJsonLines[] = {"{", "[", "[]", "null"};  // first lines of a document
constexpr std::string_view kSvgMark = "<!-- drawn by ridgeline -->\n";

}  // namespace

// The mark of a JSON file is a space at the end of its first line, which no other writer leaves
// there.
std::string with_mark(std::string text) {
  const size_t end = text.find('\n');
  if (end != text.npos &&
      std::ranges::count(kJsonLines, std::string_view(text).substr(0, end)) > 0) {
    text.insert(end, 1, ' ');
  } else if (text.starts_with("<svg ")) {
    text = std::string(kSvgMark) + text;
  }
  return text;
}

bool has_json_mark(std::string_view head) {
  const std::string_view line = head.substr(0, head.find('\n'));
  return line.size() < head.size() && line.ends_with(' ') &&
         std::ranges::count(kJsonLines, line.substr(0, line.size() - 1)) > 0;
}

bool has_svg_mark(std::string_view head) { return head.starts_with(kSvgMark); }

}  // namespace ridgeline
