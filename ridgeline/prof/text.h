#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

// Escapes text for other formats. Callers must not pass invalid UTF-8.
namespace ridgeline::prof {

// Returns a JSON string, with its quotes.
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

// Returns text for HTML, XML and SVG, or for their attributes.
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
