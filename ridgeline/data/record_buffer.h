#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/data/input_file.h"

namespace ridgeline::data {

// A window on a stream of text, in which a reader looks for the end of the next record and requests
// more if needed. Holds one chunk, or one record if that is longer. A byte order mark is skipped at
// the beginning of a file; anywhere else it is a character of the text.
class RecordBuffer {
 public:
  explicit RecordBuffer(ByteStream& source, size_t chunk = size_t{1} << 20,
                        bool begins_file = true);

  // The buffered bytes, starting with the next record. Writable: readers unescape in place.
  char* data() { return bytes_.data() + begin_; }
  size_t size() const { return end_ - begin_; }
  // Reads more; returns false at the end of the stream. data() may move. Throws Error(data) if a
  // record grows past kMostRecord, naming `line`, where it began.
  bool more(int64_t line);
  void drop(size_t count) { begin_ += count; }

  const std::string& name() const { return source_.name(); }

  // A model reads at most 1 MiB of a text. Several records are in memory at once.
  static constexpr size_t kMostRecord = size_t{16} << 20;

 private:
  // A small input takes little memory: reads begin with this many bytes and double up to a chunk.
  static constexpr size_t kFirstRead = size_t{16} << 10;

  ByteStream& source_;
  size_t chunk_, next_;
  std::vector<char> bytes_;
  size_t begin_ = 0, end_ = 0;
  bool mark_may_come_;
};

// Throws Error(data) if the record, which began at `line`, holds a NUL byte or is not UTF-8.
void check_text(std::string_view record, const std::string& file, int64_t line);

}  // namespace ridgeline::data
