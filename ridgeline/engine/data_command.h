#pragma once

#include <filesystem>
#include <string>

#include "ridgeline/data/download.h"

namespace ridgeline::engine {

// Returns the text that `ridgeline data` prints.
std::string list_sets(const std::filesystem::path& data_dir);
// Throws Error(data) if a file is missing or differs.
std::string check_set(const std::string& name, const std::filesystem::path& data_dir);
struct GetResult {
  std::string text;
  int stopped_by = 0;  // a signal's number; the part downloaded so far is kept
};
GetResult get_set(const std::string& name, const std::filesystem::path& dest,
                  data::GetOptions options);

}  // namespace ridgeline::engine
