#include "ridgeline/data/source/table_column.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <memory>
#include <utility>

#include "ridgeline/core/text.h"

namespace ridgeline::data {
namespace {

// Doubles hold every integer up to this one.
constexpr double kMostWhole = 0x1p53;

bool all_whole(std::span<const double> values, double most) {
  return std::ranges::all_of(values, [most](double value) {
    return std::abs(value) <= most && value == std::floor(value);
  });
}

// Returns the values unchanged, or as integers.
template <typename T>
std::shared_ptr<const FieldValues> shared_values(std::vector<T> values, size_t row_bytes) {
  auto owner = std::make_shared<const std::vector<T>>(std::move(values));
  const auto bytes = std::as_bytes(std::span(*owner));
  return std::make_shared<MemoryValues>(bytes, row_bytes, std::move(owner));
}

template <typename T>
std::vector<T> cast(std::span<const double> values) {
  std::vector<T> result(values.size());
  std::ranges::transform(values, result.begin(), [](double value) { return T(value); });
  return result;
}

}  // namespace

Field numbers_field(std::string name, std::vector<double> values, const Shape& shape, DType whole) {
  Field field;
  field.name = std::move(name);
  field.shape = shape.drop_front();
  field.samples = shape[0];
  const auto elements = size_t(field.shape.numel());
  if (whole == DType::int32 && all_whole(values, std::numeric_limits<int32_t>::max())) {
    field.dtype = DType::int32;
    field.values = shared_values(cast<int32_t>(values), elements * sizeof(int32_t));
  } else if (all_whole(values, kMostWhole)) {
    field.dtype = DType::int64;
    field.values = shared_values(cast<int64_t>(values), elements * sizeof(int64_t));
  } else {
    field.dtype = DType::fp64;
    field.values = shared_values(std::move(values), elements * sizeof(double));
  }
  return field;
}

Field TableColumn::finish(const std::string& file) && {
  Field field;
  if (kind_ == Kind::words) {
    field = std::move(words_).finish(std::move(name_), rule_, file);
  } else {
    const Shape shape{int64_t(numbers_.size())};
    field = numbers_field(std::move(name_), std::move(numbers_), shape, DType::int64);
  }
  field.origin = file;
  return field;
}

bool is_missing_word(std::string_view cell) {
  constexpr std::array<std::string_view, 12> kWords{"",     "NA",   "N/A",  "n/a",  "NaN",  "nan",
                                                    "-nan", "null", "NULL", "None", "<NA>", "?"};
  const std::string_view text = trimmed(cell);
  return text.size() <= 4 && std::ranges::find(kWords, text) != kWords.end();
}

bool is_missing_number(std::string_view cell) {
  constexpr std::array<std::string_view, 23> kWords{
      "na",    "n/a",     "n.a.",   "nan",    "-nan",    "null",    "none",   "nil",
      "<na>",  "-",       "--",     ".",      "..",      "#n/a",    "#na",    "#num!",
      "#ref!", "#value!", "#name?", "#null!", "#div/0!", "missing", "unknown"};
  const std::string_view text = trimmed(cell);
  if (is_missing_word(text)) return true;
  const auto small = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == b;
  };
  return std::ranges::any_of(
      kWords, [&](std::string_view word) { return std::ranges::equal(text, word, small); });
}

}  // namespace ridgeline::data
