#pragma once

#include <memory>
#include <vector>

#include "ridgeline/data/csv.h"
#include "ridgeline/data/text_reader.h"

namespace ridgeline::data {

// Cuts a stream of texts into pieces of whole records without looking at what is in them: the
// cheap part of reading, for one who hands the rest to others (open_text of a MemoryStream).
class TextSplitter {
 public:
  // The format must be named. Takes a csv file's header.
  TextSplitter(std::unique_ptr<ByteStream> bytes, const TextColumns& columns,
               const TextPlace& place = {});

  struct Piece {
    int64_t records = 0;  // fewer than asked for only at the end
    TextPlace place;
  };
  // Appends the next records to `out`, as they are written. Blank lines that are no records come
  // along uncounted, so that line numbers stay right.
  Piece next(int64_t records, std::vector<uint8_t>& out);

  // Where things are in the pieces: a csv file's columns as numbers.
  const TextColumns& columns() const { return columns_; }

 private:
  bool next_line(std::string_view& line, bool& blank);

  std::unique_ptr<ByteStream> bytes_;
  TextColumns columns_;
  std::unique_ptr<CsvReader> csv_;
  std::unique_ptr<RecordBuffer> lines_;
  size_t used_ = 0;
  int64_t line_ = 1;
};

}  // namespace ridgeline::data
