#include "ridgeline/data/csv.h"

#include <algorithm>
#include <cstring>

#include "ridgeline/core/error.h"
#include "ridgeline/core/text.h"

namespace ridgeline::data {

CsvReader::CsvReader(ByteStream& source, char separator, size_t chunk, bool begins_file)
    : buffer_(source, chunk, begins_file), separator_(separator) {}

bool CsvReader::next(std::vector<std::string_view>& fields) {
  buffer_.drop(record_bytes_);
  record_bytes_ = 0;
  for (;;) {
    line_ = next_line_;
    switch (scan()) {
      case Found::end_of_data:
        return false;
      case Found::blank:
        ++next_line_;
        buffer_.drop(record_bytes_);
        record_bytes_ = 0;
        continue;
      case Found::record:
        const std::string_view record(buffer_.data(), record_bytes_);
        check_text(record, buffer_.name(), line_);
        next_line_ += std::count(record.begin(), record.end(), '\n');
        unescape(fields);
        return true;
    }
  }
}

CsvReader::Raw CsvReader::next_raw(std::string_view& text) {
  buffer_.drop(record_bytes_);
  record_bytes_ = 0;
  line_ = next_line_;
  const Found found = scan();
  if (found == Found::end_of_data) return Raw::end;
  text = {buffer_.data(), record_bytes_};
  next_line_ += std::count(text.begin(), text.end(), '\n');
  if (found == Found::blank) return Raw::blank;
  if (columns_ == 0) columns_ = found_.size();
  return Raw::record;
}

// Finds the fields of the next record, reading more until it is complete.
CsvReader::Found CsvReader::scan() {
  bool last_data = false;
  for (;;) {
    found_.clear();
    size_t at = 0;
    bool whole = buffer_.size() > 0;
    while (whole) {
      whole = scan_field(at, last_data);
      if (!whole) break;
      if (at < buffer_.size() && buffer_.data()[at] == separator_) {
        ++at;
        continue;
      }
      if (at < buffer_.size()) ++at;  // the line's end
      record_bytes_ = at;
      const bool blank = found_.size() == 1 && is_blank(found_[0]);
      return blank ? Found::blank : Found::record;
    }
    if (last_data) return Found::end_of_data;
    last_data = !buffer_.more(line_);
    if (last_data && buffer_.size() == 0) return Found::end_of_data;
  }
}

// An empty line, or, in a table of several columns, one of blanks alone.
bool CsvReader::is_blank(const Field& field) {
  if (field.begin > 0) return false;  // quotes
  const std::string_view text(buffer_.data(), field.end);
  return text.empty() || (columns_ > 1 && text.find_first_not_of(" \t") == std::string_view::npos);
}

// Scans one field from `at`; leaves `at` on the separator, the LF, or the end of the last record.
// Returns false if the data ends before the field does.
bool CsvReader::scan_field(size_t& at, bool last_data) {
  const char* text = buffer_.data();
  const size_t size = buffer_.size();
  if (at < size && text[at] == '"') return scan_quoted(at, last_data);
  const size_t begin = at;
  while (at < size && text[at] != separator_ && text[at] != '\n') ++at;
  if (at == size && !last_data) return false;
  size_t end = at;
  const bool ends_line = at == size || text[at] == '\n';
  if (ends_line && end > begin && text[end - 1] == '\r') --end;
  found_.push_back({begin, end, false});
  return true;
}

bool CsvReader::scan_quoted(size_t& at, bool last_data) {
  const char* text = buffer_.data();
  const size_t size = buffer_.size(), begin = ++at;
  bool doubled = false;
  for (;;) {
    const void* quote = std::memchr(text + at, '"', size - at);
    if (quote == nullptr) {
      if (!last_data) return false;
      throw_error(ErrorKind::data, "{}: line {}: column {}: a quote is opened and never closed",
                  buffer_.name(), line_ + std::count(text, text + begin, '\n'), found_.size() + 1);
    }
    at = size_t(static_cast<const char*>(quote) - text) + 1;
    if (at == size && !last_data) return false;  // a second quote may follow
    if (at == size || text[at] != '"') break;
    doubled = true;
    ++at;
  }
  found_.push_back({begin, at - 1, doubled});
  if (at < size && text[at] == '\r') {
    if (at + 1 == size && !last_data) return false;
    if (at + 1 == size || text[at + 1] == '\n') ++at;
  }
  if (at < size && text[at] != separator_ && text[at] != '\n') {
    throw_error(ErrorKind::data,
                "{}: line {}: column {}: text after the closing quote; double the quotes inside a "
                "quoted field",
                buffer_.name(), line_ + std::count(text, text + at, '\n'), found_.size());
  }
  return true;
}

void CsvReader::unescape(std::vector<std::string_view>& fields) {
  if (columns_ == 0) columns_ = found_.size();
  if (found_.size() != columns_) {
    throw_error(ErrorKind::data, "{}: line {}: {}, but the first record has {}{}", buffer_.name(),
                line_, counted(int64_t(found_.size()), "column"), columns_,
                columns_ == 1 ? "; remove the lines before the table, if there are any" : "");
  }
  fields.clear();
  char* text = buffer_.data();
  for (const Field& field : found_) {
    char* const begin = text + field.begin;
    char* end = text + field.end;
    if (field.doubled) {
      char* out = begin;
      for (const char* in = begin; in < end; ++in) {
        *out++ = *in;
        if (*in == '"') ++in;  // the second of the pair
      }
      end = out;
    }
    fields.emplace_back(begin, size_t(end - begin));
  }
}

}  // namespace ridgeline::data
