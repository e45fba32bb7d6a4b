#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

// Text put into other formats. What is no valid UTF-8 is the caller's to avoid.
namespace ridgeline::prof {

// As a JSON string, with its quotes.
inline std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", unsigned(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

// As text or an attribute of HTML, XML and SVG.
inline std::string xml_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

}  // namespace ridgeline::prof
