#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ridgeline/data/prepare/rules.h"
#include "ridgeline/data/source/open.h"
#include "ridgeline/data/split.h"
#include "ridgeline/nn/config_table.h"

namespace ridgeline::engine {

// A user's own data: files or folders that data::open_source reads, and the rules by which their
// fields become inputs and targets. It is the [data] section of a config that has a key `train`.
struct UserDataConfig {
  struct Column {  // settings of one field
    std::string name;
    std::optional<data::ScaleKind> scale{};
    bool log = false;
    std::optional<std::pair<double, double>> clip{};
    std::optional<data::MissingRule> missing{};
    bool category = false;  // numbers of a table are read as words

    bool operator==(const Column&) const = default;
  };

  std::string train, validation, test;  // files or folders; empty: the split makes the part
  // Fields, or a file that holds one array. Empty: as data::default_target says.
  std::vector<std::string> target{};
  std::string validation_target, test_target;  // files, if the target is a file
  std::vector<std::string> features{};         // none: all fields but the target and texts
  std::optional<data::TargetKind> target_kind{};
  data::ScaleKind target_scale = data::ScaleKind::standard;  // of values
  bool drop_missing_target = false;  // samples without a target are left out; else they are refused
  std::optional<data::ScaleKind> scale{};  // none: standard for numbers, unit for images
  data::MissingRule missing = data::MissingRule::refuse;
  data::UnseenRule unseen = data::UnseenRule::refuse;
  std::vector<Column> columns{};
  std::optional<data::WindowRule> windows{};
  std::string weight{};   // a field or a file with how much each sample counts in training
  std::string lengths{};  // a field or a file with the number of timesteps of each sample
  std::optional<int64_t> length{};  // longer sequences are cut to this
  double validation_part = 0;
  std::optional<double> test_part{};  // none: a tenth, unless `test` names one
  uint64_t split_seed = 1;
  std::optional<bool> stratify{};  // none: if the targets are classes
  data::TableOptions::Header header = data::TableOptions::Header::automatic;
  std::string separator{};  // one character, or "tab"; empty: detected from the file
  int channels = 0;         // of images: 1 or 3; 0: unchanged
  // Raw files of numbers have this type and this shape of a sample. If empty, files describe
  // themselves.
  std::string dtype{};
  std::vector<int64_t> shape{};
  std::string target_dtype{};  // of a raw target file, one number per sample

  data::PrepareRules rules() const;  // with the target's names as given here
  data::SourceOptions source_options() const;

  bool operator==(const UserDataConfig&) const = default;
};

// Reads the keys of the [data] section for a user's data; the caller reads the others.
UserDataConfig read_user_data(nn::ConfigTable& table);
std::string to_toml(const UserDataConfig& user);  // lines of the [data] section

}  // namespace ridgeline::engine
