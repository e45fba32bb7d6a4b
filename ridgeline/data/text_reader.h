#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/data/input_file.h"

namespace ridgeline::data {

enum class TextFormat {
  automatic,  // by the extension before .gz: .csv, .jsonl or .json; anything else is lines
  csv,
  lines,  // one text per line, no labels
  jsonl,  // one object per line
};

// The columns of texts and labels in a file of texts.
struct TextColumns {
  TextFormat format = TextFormat::automatic;
  // csv: column numbers from 1, or names if the first record is a header; jsonl: keys. Several
  // texts are joined by a space. The label may be empty: there is none.
  std::vector<std::string> text{};
  std::string label{};
};

struct TextRecord {
  std::string_view text;
  std::string_view label;  // as written; empty if there is none
  int64_t line = 0;        // where the record begins, from 1
};

// Reads the records of a file of texts, plain or gzip, in bounded memory, and checks that each is
// UTF-8 without NUL. Throws Error(data) with the line.
class TextReader {
 public:
  virtual ~TextReader() = default;
  virtual bool next(TextRecord& record) = 0;  // valid until the next call; false at the end
  virtual const std::string& file() const = 0;
};

std::unique_ptr<TextReader> open_text(const std::filesystem::path& path,
                                      const TextColumns& columns);

// The position of records in the file they were taken from.
struct TextPlace {
  int64_t line = 1;         // of the first record
  size_t columns = 0;       // of every record of a csv file; 0: those of the first
  bool begins_file = true;  // else it is a later part, where a byte order mark is text
};

// Reads some of a file's records. The format must be named; a csv file's columns are numbers.
std::unique_ptr<TextReader> open_text(std::unique_ptr<ByteStream> bytes, const TextColumns& columns,
                                      const TextPlace& place);

// Returns the format that `automatic` stands for.
TextFormat text_format(const std::filesystem::path& path);

}  // namespace ridgeline::data
