#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ridgeline::data {

struct FileInfo {
  std::string name;            // as mirrors serve it
  int64_t bytes = 0;           // packed
  std::string sha256;          // of the file as mirrors serve it
  std::string payload_sha256;  // of what it unpacks to: the same however it was packed
};

struct SetInfo {
  std::string name;  // what users write, and the folder that `get` makes
  std::string title{};
  std::string licence{};
  bool text = false;     // one file of text for a language model, not images
  bool records = false;  // labelled texts: a file to train on and one to test on, of these columns
  int classes = 0;
  std::vector<std::string> folders{};  // names under which a data folder may hold it
  std::vector<FileInfo> files{};
  std::vector<std::string> mirrors{};  // base URLs, tried in order; files are checked by sha256
  // Of records: names of the training file, the whole one first; csv columns; what classes mean.
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
