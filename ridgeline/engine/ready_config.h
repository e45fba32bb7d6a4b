#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ridgeline/data/prepare/target.h"
#include "ridgeline/data/summary.h"
#include "ridgeline/engine/data_describe.h"

namespace ridgeline::engine {

struct Described {
  data::Field field;
  data::FieldSummary summary;
};

struct DescribedTarget {
  std::string name;
  data::TargetKind kind{};
  std::vector<std::pair<std::string, int64_t>> classes{};  // with the samples of each
};

// Whether a field of single whole numbers counts the samples in any order: 0, 1, 2 or 1002, 1001.
bool counts_samples(const Described& described);

// Whether all values of a field are missing.
bool has_no_value(const Described& described);

// A config that trains at once on the fields of `path`, with a network small enough for any
// machine. It repeats what `options` say of how the file is read. Columns that count the samples
// are left out, unless there is nothing else, and so are those without values. Throws usage where
// nothing is left to learn from, or the target teaches nothing.
std::string ready_config(const std::filesystem::path& path, std::span<const Described> fields,
                         const DescribedTarget& target, const DescribeOptions& options);

}  // namespace ridgeline::engine
