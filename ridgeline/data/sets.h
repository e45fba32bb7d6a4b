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
  bool text = false;  // one file of text for a language model, not images
  int classes = 0;
  std::vector<std::string> folders{};  // names under which a data folder may hold it
  std::vector<FileInfo> files{};
  std::vector<std::string> mirrors{};  // base URLs, tried in order; files are checked by sha256
};

const std::vector<SetInfo>& known_sets();

const SetInfo* find_known_set(std::string_view name);  // nullptr: no such set
const SetInfo& set_info(std::string_view name);        // throws usage, with the known names

}  // namespace ridgeline::data
