#include "ridgeline/data/source/json_column.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"

namespace ridgeline::data {

void JsonColumn::fill(int64_t samples) {
  for (; samples_ < samples; ++samples_) {
    if (scalars_) scalars_->add_missing();
    if (kind_ == Kind::array) lengths_.push_back(0);
  }
}

std::string JsonColumn::add(const nlohmann::ordered_json& value) {
  if (value.is_null()) {
    fill(samples_ + 1);
    return {};
  }
  const Kind kind = value.is_array() ? Kind::array : Kind::scalar;
  if (kind_ == Kind::unknown) {
    kind_ = kind;
    if (kind == Kind::scalar) {
      truths_ = value.is_boolean();
      const bool number = value.is_number() && rule_ == TextRule::automatic;
      scalars_.emplace(name_, number ? TableColumn::Kind::number : TableColumn::Kind::words, rule_);
    }
    fill(std::exchange(samples_, 0));  // values missing before the first one
  }
  if ((kind == Kind::array) != is_array()) return "is an array in some lines and none in others";
  const bool words = kind == Kind::array && !value.empty() && value.front().is_string();
  if (words && kind_ == Kind::array && values_.empty()) begin_words();
  if (kind_ == Kind::words && value.empty()) return fill(samples_ + 1), std::string();
  std::string fault = kind == Kind::scalar ? add_scalar(value) : add_array(value);
  samples_ += fault.empty();
  return fault;
}

std::string JsonColumn::add_scalar(const nlohmann::ordered_json& value) {
  const bool words = scalars_->kind() == TableColumn::Kind::words;
  const bool number_as_word = words && rule_ != TextRule::automatic && value.is_number();
  if (value.is_string() && words && !truths_) {
    scalars_->add(std::string_view(value.get_ref<const std::string&>()));
  } else if (value.is_boolean() && words && truths_) {
    scalars_->add(std::string_view(value.get<bool>() ? "true" : "false"));
  } else if (value.is_number() && !words) {
    scalars_->add(value.get<double>());
  } else if (number_as_word) {
    scalars_->add(std::string_view(value.dump()));
  } else {
    return fmt::format(
        "is a {}, but {} in the lines before; write all of them alike, or read the key as words: "
        "--category, or category = true in data.columns",
        value.type_name(), words ? (truths_ ? "true or false" : "a text") : "a number");
  }
  return {};
}

// The lists before, if any, were empty.
void JsonColumn::begin_words() {
  kind_ = Kind::words;
  scalars_.emplace(name_, TableColumn::Kind::words, TextRule::text);
  fill(std::exchange(samples_, 0));
}

std::string JsonColumn::add_array(const nlohmann::ordered_json& value) {
  if (kind_ == Kind::words) {
    scalars_->add(std::string_view(value.dump()));
    return {};
  }
  for (const nlohmann::ordered_json& element : value) {
    if (element.is_array() && element.empty()) return "holds an element without numbers";
    const int64_t width = element.is_array() ? int64_t(element.size()) : 0;
    if (width_ < 0) width_ = width;
    if (width != width_) return "holds elements of different lengths";
    if (!element.is_array()) {
      if (!element.is_number()) return "holds something other than numbers";
      values_.push_back(element.get<double>());
      continue;
    }
    for (const nlohmann::ordered_json& number : element) {
      if (!number.is_number()) return "holds something other than numbers";
      values_.push_back(number.get<double>());
    }
  }
  lengths_.push_back(int64_t(value.size()));
  return {};
}

Field JsonColumn::finish_arrays() && {
  const int64_t width = std::max<int64_t>(width_, 0), length = lengths_.front();
  const int64_t timesteps = width > 0 ? int64_t(values_.size()) / width : int64_t(values_.size());
  const bool alike = std::ranges::all_of(lengths_, [&](int64_t other) { return other == length; });
  if (alike && length > 0) {
    const Shape shape = width > 0 ? Shape{samples_, length, width} : Shape{samples_, length};
    return numbers_field(std::move(name_), std::move(values_), shape, DType::int64);
  }
  const Shape shape = width > 0 ? Shape{timesteps, width} : Shape{timesteps};
  Field field = numbers_field(std::move(name_), std::move(values_), shape, DType::int32);
  field.kind = FieldKind::sequence;
  field.samples = samples_;
  std::vector<int64_t> offsets{0};
  for (const int64_t of_sample : lengths_) offsets.push_back(offsets.back() + of_sample);
  field.offsets = std::make_shared<const std::vector<int64_t>>(std::move(offsets));
  return field;
}

Field JsonColumn::finish(const std::string& file) && {
  Field field;
  if (kind_ == Kind::array) {
    field = std::move(*this).finish_arrays();
  } else if (scalars_) {
    field = std::move(*scalars_).finish(file);
  } else {  // null in every line
    TableColumn nothing(std::move(name_), TableColumn::Kind::number);
    for (int64_t i = 0; i < samples_; ++i) nothing.add_missing();
    field = std::move(nothing).finish(file);
  }
  field.origin = file;
  return field;
}

}  // namespace ridgeline::data
