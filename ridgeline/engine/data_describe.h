#pragma once

#include <filesystem>
#include <string>

#include "ridgeline/data/source/open.h"

namespace ridgeline::engine {

struct DescribeOptions {
  data::SourceOptions source{};
  // A field, or a file of one array with as many samples. Empty: one called target, label, class or
  // y; of a table, else the last column.
  std::string target{};
  bool checksums = false;  // SHA-256 of every field
  bool config = false;     // write one that trains on this data; needs a target
};

struct DescribeReport {
  std::string text, json;
  std::string config;  // TOML, if asked for
};

// What `ridgeline data describe` prints: the fields of a source, their types, ranges and missing
// values, what there is to learn, and the memory that it takes.
DescribeReport describe_data(const std::filesystem::path& path, const DescribeOptions& options);

}  // namespace ridgeline::engine
