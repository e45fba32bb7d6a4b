#include "ridgeline/data/source/number.h"

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

}  // namespace ridgeline::data
