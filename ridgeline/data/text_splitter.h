#pragma once

#include <memory>
#include <vector>

#include "ridgeline/data/csv.h"
#include "ridgeline/data/text_reader.h"

namespace ridgeline::data {

// Divides a stream of texts into blocks of whole records without parsing them. This is the
// cheap part of reading, for callers that let other threads do the rest (open_text of a
// MemoryStream).
class TextSplitter {
 public:
  // The format must be named. Reads a csv file's header.
  TextSplitter(std::unique_ptr<ByteStream> bytes, const TextColumns& columns,
               const TextPlace& place = {});

  struct Block {
    int64_t records = 0;
    TextPlace place;
  };
  // A block ends after the record that makes it this long, however few records it has.
  static constexpr size_t kMostBytes = size_t{8} << 20;
  // Appends the next records unchanged to `out`: fewer than requested at the end of the stream, or
  // if the block is long. Blank lines that are not records are included but not counted, so that
  // line numbers stay right.
  Block next(int64_t records, std::vector<uint8_t>& out);

  // False once the end of the stream has been read.
  bool more() const { return !ended_; }

  // The columns in the blocks: a csv file's columns as numbers.
  const TextColumns& columns() const { return columns_; }

 private:
  bool next_line(std::string_view& line, bool& blank);

  std::unique_ptr<ByteStream> bytes_;
  TextColumns columns_;
  std::unique_ptr<CsvReader> csv_;
  std::unique_ptr<RecordBuffer> lines_;
  size_t used_ = 0;
  bool ended_ = false;
  int64_t line_ = 1;
};

}  // namespace ridgeline::data
