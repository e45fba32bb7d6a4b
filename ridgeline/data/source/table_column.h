#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/data/source/text_column.h"

namespace ridgeline::data {

// A column of a table while it is read: of numbers or of words.
class TableColumn {
 public:
  enum class Kind : uint8_t { number, words };

  TableColumn(std::string name, Kind kind, TextRule rule = TextRule::automatic)
      : name_(std::move(name)), kind_(kind), rule_(rule) {}

  const std::string& name() const { return name_; }
  Kind kind() const { return kind_; }
  int64_t size() const { return kind_ == Kind::number ? int64_t(numbers_.size()) : words_.size(); }

  void add(double value) { numbers_.push_back(value); }
  // Adds values[0], values[stride], ...
  void add(const double* values, size_t stride, size_t count) {
    const size_t have = numbers_.size();
    numbers_.resize(have + count);
    for (size_t i = 0; i < count; ++i) numbers_[have + i] = values[i * stride];
  }
  void add(std::string_view word) { words_.add(word); }
  void add_missing() {
    if (kind_ == Kind::number) {
      numbers_.push_back(std::numeric_limits<double>::quiet_NaN());
    } else {
      words_.add_missing();
    }
  }

  // Whether every cell is missing.
  bool blank() const {
    const auto missing = [](double value) { return value != value; };
    return kind_ == Kind::number && std::ranges::all_of(numbers_, missing);
  }

  // int64 if all numbers are whole and none is missing, else fp64 with NaN for what is missing;
  // words by the rule of TextColumn.
  Field finish(const std::string& file) &&;

 private:
  std::string name_;
  Kind kind_;
  TextRule rule_;
  std::vector<double> numbers_;
  TextColumn words_;
};

// Makes a field of [samples, ...] from doubles: integers as `whole` (int32 if they fit, or int64),
// else fp64.
Field numbers_field(std::string name, std::vector<double> values, const Shape& shape, DType whole);

// Recognises words for a missing value: nothing, NA, N/A, NaN, null, None, ? and similar.
bool is_missing_word(std::string_view cell);

// Whether a cell says, among numbers, that there is none: a word for a missing value in capitals or
// small letters, a dash, or an error of a spreadsheet (#N/A, #DIV/0!). Among words these are words.
bool is_missing_number(std::string_view cell);

}  // namespace ridgeline::data
