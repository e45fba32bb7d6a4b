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

namespace {

constexpr std::string_view kUnits[] = {"$", "%", "\u20ac", "\u00a3", "\u00a5", "\u20b9"};
constexpr std::string_view kSpaces[] = {" ", "'", "\u00a0", "\u202f", "\u2019"};

// Returns the text without one of these at its beginning, or at its end.
std::string_view take_unit(std::string_view text, bool first) {
  for (const std::string_view unit : kUnits) {
    if (first ? !text.starts_with(unit) : !text.ends_with(unit)) continue;
    return trimmed(first ? text.substr(unit.size()) : text.substr(0, text.size() - unit.size()));
  }
  return text;
}

// Returns a number as spreadsheets show it without its currency or percent sign, and with `group`
// in the place of blanks and apostrophes between digits.
std::string without_marks(std::string_view cell, char group) {
  std::string_view text = trimmed(cell);
  const size_t sign = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  std::string plain(text.substr(0, sign));
  text = take_unit(take_unit(trimmed(text.substr(sign)), true), false);
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const auto* space = std::ranges::find_if(
        kSpaces, [&](std::string_view each) { return rest.starts_with(each); });
    const bool found = at > 0 && space != std::end(kSpaces);
    plain += found ? group : text[at];
    at += found ? space->size() : 1;
  }
  return plain;
}

bool is_plain(std::string_view text) {
  return std::ranges::all_of(text, [](char c) {
    return std::string_view("0123456789.,+-eEinfatyINFATY").find(c) != std::string_view::npos;
  });
}

bool parse_grouped(std::string_view text, char decimal, double& value);

}  // namespace

bool parse_number(std::string_view cell, char decimal, double& value) {
  const char group = decimal == ',' ? '.' : ',';
  const std::string_view text = trimmed(cell);
  if (!is_plain(text)) return parse_grouped(without_marks(text, group), decimal, value);
  if (decimal == '.' && text.find(group) == std::string_view::npos) {
    return parse_number(text, value);
  }
  return parse_grouped(text, decimal, value);
}

namespace {

bool parse_grouped(std::string_view text, char decimal, double& value) {
  const char group = decimal == ',' ? '.' : ',';
  std::string plain;  // with a point and without groups
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

}  // namespace

}  // namespace ridgeline::data
