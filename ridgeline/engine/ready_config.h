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

// Whether a field of single whole numbers counts the samples, one more each: 0, 1, 2 or 1001, 1002.
bool counts_samples(const Described& described);

// A config that trains at once on the fields of `path`, with a network small enough for any
// machine. It repeats what `options` say of how the file is read. Columns that count the samples
// are left out, unless there is nothing else. Throws usage where nothing is left to learn from.
std::string ready_config(const std::filesystem::path& path, std::span<const Described> fields,
                         const DescribedTarget& target, const DescribeOptions& options);

}  // namespace ridgeline::engine
