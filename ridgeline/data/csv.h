#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ridgeline/data/record_buffer.h"

namespace ridgeline::data {

// Records of a CSV file, one at a time, in bounded memory: fields may be quoted, hold separators,
// line ends and doubled quotes; lines end in LF or CRLF; blank lines are skipped. Throws data, with
// the line, on a quote left open, text after a closing quote, a NUL byte, invalid UTF-8, and when a
// record has another number of fields than the first.
class CsvReader {
 public:
  // `begins_file`: as of RecordBuffer.
  explicit CsvReader(ByteStream& source, char separator = ',', size_t chunk = size_t{1} << 20,
                     bool begins_file = true);

  // The next record's fields, valid until the next call; false at the end.
  bool next(std::vector<std::string_view>& fields);
  int64_t line() const { return line_; }  // where the record last given began, from 1

  // The next record as it is written, with its line end: neither its text nor its number of fields
  // is checked, but its quotes are. A blank line is given too: for who copies records elsewhere.
  enum class Raw { record, blank, end };
  Raw next_raw(std::string_view& text);
  size_t columns() const { return columns_; }  // of the first record; 0: none was read

  // What is at hand of the records not given yet, and a way to say that whole records of it, of
  // so many lines, were read by other means: for who has a faster way to read plain ones.
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
