#include "ridgeline/data/source/table_format.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <utility>

#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/data/csv.h"
#include "ridgeline/data/source/number.h"

namespace ridgeline::data {
namespace {

using Record = std::vector<std::string>;

// Counts the separators of each record; quotes are followed, nothing is checked.
std::vector<int64_t> counts(std::string_view sample, bool whole, char separator) {
  std::vector<int64_t> result;
  int64_t count = 0;
  bool quoted = false, blank = true;
  for (const char c : sample) {
    if (c == '"') quoted = !quoted;
    if (!quoted && c == '\n') {
      if (!blank || count > 0) result.push_back(count);
      count = 0;
      blank = true;
      if (int64_t(result.size()) == kTableSampleRecords) return result;
      continue;
    }
    if (c != '\r' && c != ' ' && c != '\t') blank = false;
    count += !quoted && c == separator;
  }
  if (whole && !blank) result.push_back(count);
  return result;
}

// Whether a record has more columns than any table may have, each of which takes memory.
bool too_many_columns(std::string_view sample, bool whole, char separator) {
  return std::ranges::any_of(counts(sample, whole, separator),
                             [](int64_t count) { return count >= kMostColumns; });
}

// Returns the records of the sample; a truncated last one is left out, and so is everything after
// an error, which reading the whole file will report.
std::vector<Record> records(std::string_view sample, bool whole, char separator,
                            const std::string& file) {
  MemoryStream bytes(std::as_bytes(std::span(sample)), file);
  CsvReader reader(bytes, separator);
  std::vector<Record> result;
  std::vector<std::string_view> fields;
  try {
    while (int64_t(result.size()) <= kTableSampleRecords && reader.next(fields)) {
      result.emplace_back(fields.begin(), fields.end());
    }
  } catch (const Error&) {
    if (result.empty() && whole) throw;
    return result;
  }
  const bool cut = !whole && int64_t(result.size()) <= kTableSampleRecords;
  if (cut && !result.empty()) result.pop_back();
  return result;
}

struct Cells {
  int64_t numbers = 0, others = 0;
  int64_t missing = 0;  // among numbers; else these are words
  bool number() const {
    return others * 10 <= numbers + others && (numbers > 0 || others + missing == 0);
  }
};

std::vector<Cells> count_cells(const std::vector<Record>& records, size_t first, char decimal) {
  std::vector<Cells> result(records.front().size());
  double ignored = 0;
  for (size_t r = first; r < records.size(); ++r) {
    for (size_t c = 0; c < result.size() && c < records[r].size(); ++c) {
      const std::string& cell = records[r][c];
      if (is_missing_word(cell)) continue;
      ++(parse_number(cell, decimal, ignored) ? result[c].numbers
         : is_missing_number(cell)            ? result[c].missing
                                              : result[c].others);
    }
  }
  return result;
}

// Which part of the cells are numbers of one kind or the other.
double number_share(std::string_view sample, bool whole, char separator) {
  if (too_many_columns(sample, whole, separator)) return 0;
  int64_t numbers = 0, all = 0;
  double ignored = 0;
  for (const Record& record : records(sample, whole, separator, "")) {
    for (const std::string& cell : record) {
      ++all;
      numbers += parse_number(cell, '.', ignored) || parse_number(cell, ',', ignored);
    }
  }
  return all == 0 ? 0.0 : double(numbers) / double(all);
}

char find_decimal(const std::vector<Record>& records, char separator) {
  int64_t points = 0, commas = 0;
  double ignored = 0;
  for (const Record& record : records) {
    for (const std::string& cell : record) {
      if (cell.find_first_of(",.") == std::string::npos) continue;
      const bool point = parse_number(cell, '.', ignored), comma = parse_number(cell, ',', ignored);
      // Of 1.234 and 1,234 the mark may be either. Spreadsheets write ';' where they write commas.
      const bool both_comma = separator == ';' && cell.find(',') != std::string::npos;
      points += point && !(comma && both_comma);
      commas += comma && !(point && !both_comma);
    }
  }
  // Between commas a few such cells are faults, to be named.
  const bool few = separator == ',' && commas * 10 < int64_t(records.size());
  return commas > points && !few ? ',' : '.';
}

// Whether the first record counts the columns 0, 1, 2, ..., as pandas names those of an array,
// possibly after a column without a name (the index) and before others of words.
bool counts_columns(const Record& first, char decimal) {
  constexpr size_t kFewest = 3;  // 0, 1 may well be the first sample
  const size_t begin = trimmed(first.front()).empty() ? 1 : 0;
  size_t c = begin;
  while (c < first.size() && first[c] == std::to_string(c - begin)) ++c;
  double ignored = 0;
  return c - begin >= kFewest &&
         std::none_of(first.begin() + ptrdiff_t(c), first.end(), [&](const std::string& cell) {
           return parse_number(cell, decimal, ignored);
         });
}

bool looks_like_header(const std::vector<Record>& records, char decimal) {
  const Record& first = records.front();
  if (counts_columns(first, decimal)) return true;
  double ignored = 0;
  const auto number = [&](const std::string& cell) { return parse_number(cell, decimal, ignored); };
  if (std::ranges::any_of(first, number)) return false;
  const std::vector<Cells> below = count_cells(records, 1, decimal);
  if (std::ranges::any_of(below,
                          [](const Cells& cells) { return cells.numbers > 0 && cells.number(); })) {
    return true;
  }
  std::set<std::string_view> names;
  for (size_t c = 0; c < first.size(); ++c) {
    if (trimmed(first[c]).empty() || !names.insert(first[c]).second) return false;
    for (size_t r = 1; r < records.size(); ++r) {
      if (c < records[r].size() && records[r][c] == first[c]) return false;
    }
  }
  return true;
}

std::vector<std::string> column_names(const Record& first, bool header, const std::string& file) {
  std::vector<std::string> names;
  std::map<std::string, size_t> seen;
  for (size_t c = 0; c < first.size(); ++c) {
    std::string name(header ? trimmed(first[c]) : "");
    if (name.empty()) {
      name = std::to_string(c + 1);
      if (header && std::ranges::find(first, name) != first.end()) name = "column " + name;
    }
    const auto [before, fresh] = seen.emplace(name, c);
    if (!fresh) {
      throw_error(ErrorKind::data, "{}: line 1: columns {} and {} are both named {}; rename one",
                  file, before->second + 1, c + 1, quote(name));
    }
    names.push_back(std::move(name));
  }
  return names;
}

void check_known(const std::vector<std::string>& asked, const std::vector<std::string>& names,
                 const std::string& file) {
  const std::vector<std::string_view> views(names.begin(), names.end());
  for (const std::string& name : asked) {
    if (std::ranges::find(names, name) != names.end()) continue;
    const std::string near = nearest(name, views);
    throw_error(ErrorKind::usage, "{}: has no column {}{}", file, quote(name),
                near.empty() ? "" : fmt::format("; did you mean {}?", quote(near)));
  }
}

bool is_of_numbers(char c) {
  constexpr std::string_view kLetters = "+-.eE \r\ninfaN";
  return (c >= '0' && c <= '9') || kLetters.find(c) != std::string_view::npos;
}

// Returns the first lines, as many as are examined.
std::string_view first_lines(std::string_view sample) {
  size_t end = 0;
  for (int64_t lines = 0; lines <= kTableSampleRecords; ++lines) {
    const size_t next = sample.find('\n', end);
    if (next == std::string_view::npos) return sample;
    end = next + 1;
  }
  return sample.substr(0, end);
}

void check_separator(char separator, const std::string& file) {
  const auto c = static_cast<unsigned char>(separator);
  constexpr std::string_view kTaken = "\"\r\n.+-";
  if (c < 0x80 && std::isalnum(c) == 0 && kTaken.find(separator) == std::string_view::npos) return;
  throw_error(ErrorKind::usage, "{}: {} cannot separate cells; use , ; | or a tab", file,
              quote({&separator, 1}));
}

}  // namespace

size_t separator_line(std::string_view sample, char& separator) {
  constexpr std::string_view kMark = "\xef\xbb\xbf", kSays = "sep=";
  const size_t begin = sample.starts_with(kMark) ? kMark.size() : 0;
  const size_t end = sample.find('\n');
  if (end == std::string_view::npos || !sample.substr(begin).starts_with(kSays)) return 0;
  const std::string_view said = sample.substr(begin + kSays.size(), end - begin - kSays.size());
  if (said.empty() || (said.size() > 1 && said.substr(1) != "\r")) return 0;
  separator = said.front();
  return end + 1;
}

char find_separator(std::string_view sample, bool whole) {
  char best = ',';
  double best_share = 0;
  for (const char separator : {',', '\t', ';', '|', ' '}) {
    // Blanks separate words; they separate cells only if all are numbers (np.savetxt).
    if (separator == ' ' && !std::ranges::all_of(sample, is_of_numbers)) break;
    std::map<int64_t, int64_t> times;
    const std::vector<int64_t> all = counts(sample, whole, separator);
    for (const int64_t count : all) ++times[count];
    times.erase(0);
    if (times.empty()) continue;
    const auto most =
        std::ranges::max_element(times, {}, [](const auto& entry) { return entry.second; });
    double share = double(most->second) / double(all.size());
    // The header has the separators of all lines, but no decimal commas.
    if (all.front() != most->first) share /= 2;
    // A later candidate must cut clearly more lines alike, because commas stand in texts, too; or
    // as many into more numbers, because they stand in numbers.
    const bool alike = share >= best_share - 0.05 && best_share > 0;
    if (share > best_share + 0.05 || (alike && number_share(sample, whole, separator) >
                                                   number_share(sample, whole, best) + 0.05)) {
      best_share = share;
      best = separator;
    }
  }
  return best;
}

bool alike_lines(std::string_view sample, bool whole, char separator) {
  const std::vector<int64_t> all = counts(sample, whole, separator);
  return !all.empty() && all.front() > 0 &&
         std::ranges::all_of(all, [&](int64_t count) { return count == all.front(); });
}

TableFormat find_table_format(std::string_view sample, bool whole, const TableOptions& options,
                              const std::string& file) {
  if (options.separator != '\0') check_separator(options.separator, file);
  constexpr auto kNowhere = std::string_view::npos;
  if (sample.find('\n') == kNowhere && sample.find('\r') + 1 < sample.size()) {
    throw_error(ErrorKind::data,
                "{}: its lines end as on old Macs; convert them: tr '\\r' '\\n' < FILE > NEW",
                file);
  }
  const size_t all = sample.size();
  sample = first_lines(sample);
  whole = whole && sample.size() == all;
  TableFormat format;
  format.separator = options.separator != '\0' ? options.separator : find_separator(sample, whole);
  if (too_many_columns(sample, whole, format.separator)) {
    throw_error(ErrorKind::data, "{}: has a line of more than {} cells; is {} its separator?", file,
                kMostColumns, quote({&format.separator, 1}));
  }
  const std::vector<Record> found = records(sample, whole, format.separator, file);
  if (found.empty()) throw_error(ErrorKind::data, "{}: holds no records", file);
  format.records = found.size();
  format.decimal = find_decimal(found, format.separator);
  format.header = options.header == TableOptions::Header::automatic
                      ? looks_like_header(found, format.decimal)
                      : options.header == TableOptions::Header::yes;
  const std::vector<std::string> names = column_names(found.front(), format.header, file);
  check_known(options.categories, names, file);
  check_known(options.texts, names, file);
  const std::vector<Cells> cells = count_cells(found, format.header ? 1 : 0, format.decimal);
  for (size_t c = 0; c < names.size(); ++c) {
    const bool category =
        std::ranges::find(options.categories, names[c]) != options.categories.end();
    const bool text = std::ranges::find(options.texts, names[c]) != options.texts.end();
    const bool number = !category && !text && cells[c].number();
    format.columns.emplace_back(names[c],
                                number ? TableColumn::Kind::number : TableColumn::Kind::words,
                                text       ? TextRule::text
                                : category ? TextRule::category
                                           : TextRule::automatic);
  }
  return format;
}

}  // namespace ridgeline::data
