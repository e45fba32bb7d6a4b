#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ridgeline/data/record_buffer.h"

namespace ridgeline::data {

// Reads the records of a CSV file one at a time, in bounded memory: fields may be quoted and hold
// separators, line ends and doubled quotes; lines end in LF or CRLF; blank lines are skipped.
// Throws Error(data), with the line, for an open quote, text after a closing quote, a NUL byte,
// invalid UTF-8, and a record whose number of fields differs from the first one's.
class CsvReader {
 public:
  // `begins_file` as in RecordBuffer.
  explicit CsvReader(ByteStream& source, char separator = ',', size_t chunk = size_t{1} << 20,
                     bool begins_file = true);

  // Returns the next record's fields, valid until the next call; false at the end.
  bool next(std::vector<std::string_view>& fields);
  int64_t line() const { return line_; }  // where the last record began, from 1

  // Returns the next record unchanged, with its line end: its quotes are checked, but neither its
  // text nor its number of fields. Blank lines are returned too, for callers that copy records.
  enum class Raw { record, blank, end };
  Raw next_raw(std::string_view& text);
  size_t columns() const { return columns_; }  // of the first record; 0: none was read

  // The buffered bytes of the next records, and a way to report that whole records of them, of
  // this many lines, were read otherwise: for callers with a faster parser for plain ones.
  std::string_view window() {
    return {buffer_.data() + record_bytes_, buffer_.size() - record_bytes_};
  }
  void skip(size_t bytes, int64_t lines) {
    buffer_.drop(record_bytes_ + bytes);
    record_bytes_ = 0;
    next_line_ += lines;
  }

  // For a reader that begins in the middle of a file.
  void continue_at(int64_t line, size_t columns) {
    next_line_ = line;
    columns_ = columns;
  }

 private:
  struct Field {
    size_t begin, end;  // in the buffer, without the quotes
    bool doubled;       // holds doubled quotes
  };
  enum class Found { record, blank, end_of_data };

  Found scan();
  bool is_blank(const Field& field);
  bool scan_field(size_t& at, bool last_data);
  bool scan_quoted(size_t& at, bool last_data);
  void unescape(std::vector<std::string_view>& fields);

  RecordBuffer buffer_;
  char separator_;
  std::vector<Field> found_;
  size_t record_bytes_ = 0;  // with its line end
  int64_t line_ = 0, next_line_ = 1;
  size_t columns_ = 0;
};

}  // namespace ridgeline::data
