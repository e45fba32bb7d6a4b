#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ridgeline::data {

struct FileInfo {
  std::string name;            // on the mirrors
  int64_t bytes = 0;           // compressed
  std::string sha256;          // of the file on the mirrors
  std::string payload_sha256;  // of the decompressed contents, however they were packed
};

struct SetInfo {
  std::string name;  // that users write, and the folder that `get` makes
  std::string title{};
  std::string licence{};
  bool text = false;     // one file of text for a language model, not images
  bool records = false;  // labelled texts: a training and a test file with these columns
  int classes = 0;
  std::vector<std::string> folders{};  // names under which a data folder may hold it
  std::vector<FileInfo> files{};
  std::vector<std::string> mirrors{};  // base URLs, tried in order; files are checked by sha256
  // For records: names of the training file, the complete one first; csv columns; names of the
  // classes.
  std::vector<std::string> train_files{};
  std::string test_file{};
  std::vector<std::string> text_columns{};
  std::string label_column{};
  std::vector<std::string> class_names{};
  int first_label = 0;
};

const std::vector<SetInfo>& known_sets();

const SetInfo* find_known_set(std::string_view name);  // nullptr: no such set
const SetInfo& set_info(std::string_view name);        // throws usage, with the known names

}  // namespace ridgeline::data
