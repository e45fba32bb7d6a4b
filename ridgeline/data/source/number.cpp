#include "ridgeline/data/source/number.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "ridgeline/core/text.h"

namespace ridgeline::data {

bool parse_number(std::string_view cell, double& value) {
  std::string_view text = trimmed(cell);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (end != last || text.empty()) return false;
  if (error == std::errc()) return true;
  if (error != std::errc::result_out_of_range) return false;
  // from_chars does not say in which direction it is out of range.
  if (text.starts_with('-')) text.remove_prefix(1);
  const bool small = text.find("e-") != std::string_view::npos ||
                     text.find("E-") != std::string_view::npos || text[0] == '0' || text[0] == '.';
  if (small) value = 0;
  return small;
}

bool parse_number(std::string_view cell, char decimal, double& value) {
  const char group = decimal == ',' ? '.' : ',';
  if (decimal == '.' && cell.find(group) == std::string_view::npos) {
    return parse_number(cell, value);
  }
  std::string plain;  // with a point and without groups
  const std::string_view text = trimmed(cell);
  const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  const size_t end = std::min(text.find_first_not_of("0123456789.,", sign), text.size());
  const std::string_view digits = text.substr(sign, end - sign);
  const size_t whole = std::min(digits.find(decimal), digits.size());
  size_t count = 0;  // digits of the group so far
  bool grouped = false;
  for (const char c : digits.substr(0, whole)) {
    if (c == group) {
      const bool first = count >= 1 && count <= 3 && plain[0] != '0';
      if (grouped ? count != 3 : !first) return false;
      grouped = true;
      count = 0;
    } else {
      plain += c;
      ++count;
    }
  }
  if (grouped && count != 3) return false;
  if (digits.substr(whole).find(group) != std::string_view::npos) return false;
  if (whole < digits.size()) plain += fmt::format(".{}", digits.substr(whole + 1));
  return parse_number(fmt::format("{}{}{}", text.substr(0, sign), plain, text.substr(end)), value);
}

}  // namespace ridgeline::data
