#pragma once

#include <filesystem>
#include <string>

#include "ridgeline/data/source/open.h"

namespace ridgeline::engine {

struct DescribeOptions {
  data::SourceOptions source{};
  // A field, or a file of one array with as many samples. Empty: a field called target, label,
  // class or y; else the last column of a table.
  std::string target{};
  std::string target_dtype{};  // of a target file of nothing but numbers, one per sample
  bool checksums = false;      // SHA-256 of every field
  bool config = false;         // write a config that trains on this data; needs a target
};

struct DescribeReport {
  std::string text, json;
  std::string config;  // TOML, if asked for
};

// The text that `ridgeline data describe` prints: the fields of a source, their types, ranges and
// missing values, the possible targets, and the memory they take.
DescribeReport describe_data(const std::filesystem::path& path, const DescribeOptions& options);

}  // namespace ridgeline::engine
