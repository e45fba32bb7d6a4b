#include "ridgeline/data/csv_columns.h"

#include <algorithm>
#include <charconv>

#include "ridgeline/core/error.h"
#include "ridgeline/core/text_format.h"

namespace ridgeline::data {
namespace {

// Returns a column's index, from 0, if it is given as a number.
std::optional<size_t> number(std::string_view text) {
  size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value - 1;
}

}  // namespace

CsvColumns find_csv_columns(CsvReader& reader, const TextColumns& columns,
                            const std::string& file) {
  if (columns.text.empty()) {
    throw_error(ErrorKind::usage,
                "{}: which columns hold the text? Name them, or give their "
                "numbers from 1",
                file);
  }
  std::vector<std::string> names = columns.text;
  if (!columns.label.empty()) names.push_back(columns.label);
  const bool header = std::ranges::any_of(names, [](const auto& n) { return !number(n); });
  std::vector<std::string_view> fields;
  if (header && !reader.next(fields)) {
    throw_error(ErrorKind::data, "{}: is empty; a header with {} was expected", file,
                list_words(names));
  }
  const auto find = [&](const std::string& name) {
    const auto at = std::ranges::find(fields, name);
    if (at != fields.end()) return size_t(at - fields.begin());
    if (const auto place = number(name)) return *place;
    throw_error(ErrorKind::data, "{}: line 1: no column {}; there are {}", file, quote(name),
                list_words(fields));
  };
  CsvColumns found;
  for (const std::string& name : columns.text) found.text.push_back(find(name));
  if (!columns.label.empty()) found.label = find(columns.label);
  return found;
}

}  // namespace ridgeline::data
