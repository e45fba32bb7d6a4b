#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ridgeline/data/source/table_column.h"

namespace ridgeline::data {

// The values of one key of JSON lines.
class JsonColumn {
 public:
  JsonColumn(std::string name, TextRule rule) : name_(std::move(name)), rule_(rule) {}

  const std::string& name() const { return name_; }
  int64_t size() const { return samples_; }
  bool empty() const { return kind_ == Kind::unknown; }  // no line has a value

  // Adds missing values up to `samples`.
  void fill(int64_t samples);
  // Adds a value; returns what is wrong with it, or an empty string.
  std::string add(const nlohmann::ordered_json& value);

  Field finish(const std::string& file) &&;

 private:
  // `words` are lists of texts, which are read as one text each.
  enum class Kind : uint8_t { unknown, scalar, array, words };

  bool is_array() const { return kind_ == Kind::array || kind_ == Kind::words; }
  void begin_words();
  std::string add_scalar(const nlohmann::ordered_json& value);
  std::string add_array(const nlohmann::ordered_json& value);
  Field finish_arrays() &&;

  std::string name_;
  TextRule rule_;
  Kind kind_ = Kind::unknown;
  int64_t samples_ = 0;
  std::optional<TableColumn> scalars_;  // or the texts
  bool truths_ = false;                 // scalars are booleans
  // The following are for arrays.
  std::vector<double> values_;
  std::vector<int64_t> lengths_;
  int64_t width_ = -1;  // numbers per element; 0: elements are single numbers
};

}  // namespace ridgeline::data
