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
  automatic,  // by the file's ending, .gz apart: .csv, .jsonl or .json; anything else is lines
  csv,
  lines,  // a text a line, no labels
  jsonl,  // an object a line
};

// Where texts and labels are in a file of texts.
struct TextColumns {
  TextFormat format = TextFormat::automatic;
  // csv: column numbers from 1, or names if the first record is a header; jsonl: keys. Several
  // texts are joined by a space. An empty label: there is none.
  std::vector<std::string> text{};
  std::string label{};
};

struct TextRecord {
  std::string_view text;
  std::string_view label;  // as written; empty where there is none
  int64_t line = 0;        // where the record begins, from 1
};

// Records of a file of texts, plain or gzip, in bounded memory, each checked to be UTF-8 without
// NUL. Throws data with the line.
class TextReader {
 public:
  virtual ~TextReader() = default;
  virtual bool next(TextRecord& record) = 0;  // valid until the next call; false at the end
  virtual const std::string& file() const = 0;
};

std::unique_ptr<TextReader> open_text(const std::filesystem::path& path,
                                      const TextColumns& columns);

// Records that follow others: where they stand in the file they were taken from.
struct TextPlace {
  int64_t line = 1;         // of the first record
  size_t columns = 0;       // of every record of a csv file; 0: as many as the first has
  bool begins_file = true;  // else bytes of the file come before, and a byte order mark is text
};

// The same of some of a file's records. The format must be named; a csv file's columns are numbers.
std::unique_ptr<TextReader> open_text(std::unique_ptr<ByteStream> bytes, const TextColumns& columns,
                                      const TextPlace& place);

// The format that `automatic` stands for.
TextFormat text_format(const std::filesystem::path& path);

}  // namespace ridgeline::data
