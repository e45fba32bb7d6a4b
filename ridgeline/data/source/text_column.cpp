#include "ridgeline/data/source/text_column.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "ridgeline/core/text_format.h"

namespace ridgeline::data {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;
constexpr std::array<Pair, 4> kBooleans{Pair{"false", "true"}, Pair{"no", "yes"}, Pair{"f", "t"},
                                        Pair{"n", "y"}};

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return char(std::tolower(c)); });
  return result;
}

}  // namespace

void TextColumn::add(std::string_view text) {
  auto found = codes_of_.find(text);
  if (found == codes_of_.end()) {
    if (words_.size() == size_t(std::numeric_limits<int32_t>::max())) {
      throw_error(ErrorKind::data, "a column of more than {} distinct texts is not read",
                  words_.size());
    }
    found = codes_of_.emplace(std::string(text), int32_t(words_.size())).first;
    words_.push_back(&found->first);
  }
  codes_.push_back(found->second);
}

bool TextColumn::make_boolean(const std::string& name, Field& field) const {
  if (words_.empty() || words_.size() > 4) return false;  // "True", "true", "False" and "false"
  for (const auto& [no, yes] : kBooleans) {
    std::vector<uint8_t> values;
    std::vector<std::string> written{std::string(no), std::string(yes)};
    for (const std::string* word : words_) {
      const std::string plain = lower(*word);
      if (plain != no && plain != yes) break;
      values.push_back(plain == yes);
      written[plain == yes] = *word;
    }
    if (values.size() < words_.size()) continue;
    std::vector<uint8_t> column;
    column.reserve(codes_.size());
    for (const int32_t code : codes_) {
      column.push_back(code == kMissingCode ? kMissingBoolean : values[size_t(code)]);
    }
    field = boolean_field(name, column, std::move(written));
    return true;
  }
  return false;
}

Field TextColumn::make_category(std::string name) && {
  std::vector<int32_t> order(words_.size()), place(words_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {},
                    [&](int32_t code) -> const std::string& { return *words_[size_t(code)]; });
  std::vector<std::string> categories;
  for (size_t i = 0; i < order.size(); ++i) {
    place[size_t(order[i])] = int32_t(i);
    categories.push_back(*words_[size_t(order[i])]);
  }
  for (int32_t& code : codes_) {
    if (code != kMissingCode) code = place[size_t(code)];
  }
  return category_field(std::move(name), codes_, std::move(categories));
}

Field TextColumn::make_text(std::string name) && {
  std::string bytes;
  std::vector<int64_t> offsets{0};
  offsets.reserve(codes_.size() + 1);
  for (const int32_t code : codes_) {
    if (code != kMissingCode) bytes += *words_[size_t(code)];
    offsets.push_back(int64_t(bytes.size()));
  }
  return text_field(std::move(name), bytes, std::move(offsets));
}

Field TextColumn::finish(std::string name, TextRule rule, const std::string& file) && {
  Field field;
  if (rule == TextRule::automatic && make_boolean(name, field)) return field;
  const bool few =
      distinct() <= kFewCategories || (distinct() <= size() / 2 && distinct() <= kMostCategories);
  if (rule == TextRule::text || (rule == TextRule::automatic && !few)) {
    return std::move(*this).make_text(std::move(name));
  }
  if (distinct() > kMostCategories) {
    throw_error(ErrorKind::data, "{}: column {} has {} categories; at most {} are read", file,
                quote(name), distinct(), kMostCategories);
  }
  return std::move(*this).make_category(std::move(name));
}

}  // namespace ridgeline::data
