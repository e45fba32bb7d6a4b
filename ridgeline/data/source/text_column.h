#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ridgeline/data/field_set.h"

namespace ridgeline::data {

// The kind of field that a column of words becomes.
enum class TextRule {
  // boolean if the words are true and false (or yes and no, t and f, y and n, in any case);
  // category if few words occur often: at most kFewCategories, or at most half as many as samples
  // and kMostCategories; text otherwise.
  automatic,
  category,
  text,
};

// Collects the words of a column. Each distinct one is kept once.
class TextColumn {
 public:
  static constexpr int64_t kFewCategories = 20;
  static constexpr int64_t kMostCategories = 1 << 16;

  // words_ points into codes_of_, whose nodes a move keeps and a copy does not.
  TextColumn() = default;
  TextColumn(const TextColumn&) = delete;
  TextColumn& operator=(const TextColumn&) = delete;
  TextColumn(TextColumn&&) = default;
  TextColumn& operator=(TextColumn&&) = default;

  void add(std::string_view text);
  void add_missing() { codes_.push_back(kMissingCode); }
  int64_t size() const { return int64_t(codes_.size()); }
  int64_t distinct() const { return int64_t(words_.size()); }

  // Categories are in byte order, whatever the order of the file. A missing text is empty. Throws
  // Error(data) if there are more than kMostCategories for the rule `category`.
  Field finish(std::string name, TextRule rule, const std::string& file) &&;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };

  Field make_category(std::string name) &&;
  Field make_text(std::string name) &&;
  bool make_boolean(const std::string& name, Field& field) const;

  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> codes_of_;
  std::vector<const std::string*> words_;  // by code; the keys of codes_of_
  std::vector<int32_t> codes_;             // by sample
};

}  // namespace ridgeline::data
