#include "ridgeline/data/prepare/feature.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "ridgeline/core/text_format.h"
#include "ridgeline/data/prepare/refusals.h"

namespace ridgeline::data {
namespace {

[[noreturn]] void refuse_truth(const Field& field, int64_t sample, double value) {
  throw_error(ErrorKind::data, "{}: field {}: {} of sample {} is neither true (1) nor false (0)",
              field.origin, quote(field.name), value, sample);
}

std::string word_at(const Field& field, int64_t sample) {
  if (field.kind == FieldKind::text) return read_text(field, sample);
  std::vector<double> code(1);
  read_doubles(field, sample, sample + 1, code);
  return field.categories[size_t(code[0])];
}

void check_shape(const Field& field, const Shape& want) {
  if (field.shape == want) return;
  throw_error(ErrorKind::data, "{}: field {} is {} a sample, but it was {} in training",
              field.origin, quote(field.name), to_string(field.shape), to_string(want));
}

void check_kind(const Field& field, bool boolean) {
  if (field.kind == FieldKind::number || field.kind == FieldKind::boolean) return;
  throw_error(ErrorKind::data, "{}: field {} holds {}, but {} is wanted, as in training",
              field.origin, quote(field.name),
              field.kind == FieldKind::category
                  ? fmt::format("words, such as {}",
                                quote(field.categories.empty() ? "" : field.categories.front()))
                  : fmt::format("{}s", name(field.kind)),
              boolean ? "true or false" : "a number");
}

// The codes of words.
class Codes {
 public:
  explicit Codes(std::span<const std::string> categories) {
    for (const std::string& word : categories) codes_.emplace(word, int32_t(codes_.size()));
  }
  int32_t of(std::string_view word) const {
    const auto found = codes_.find(word);
    return found == codes_.end() ? kUnseenCode : found->second;
  }

 private:
  std::unordered_map<std::string_view, int32_t> codes_;
};

}  // namespace

std::vector<int32_t> codes_by_name(const Field& field, int64_t begin, int64_t end,
                                   std::span<const std::string> categories) {
  std::vector<int32_t> codes(static_cast<size_t>(end - begin));
  const Codes known(categories);
  if (field.kind == FieldKind::text) {
    for (int64_t i = begin; i < end; ++i) {
      const std::string text = read_text(field, i);
      codes[size_t(i - begin)] = text.empty() ? kMissingCode : known.of(text);
    }
    return codes;
  }
  const bool coded = field.kind == FieldKind::category || field.kind == FieldKind::boolean;
  const bool number = field.kind == FieldKind::number && field.shape.rank() == 0;
  if (!coded && !number) {
    throw_error(ErrorKind::data, "{}: field {} holds {}s, but categories are wanted", field.origin,
                quote(field.name), name(field.kind));
  }
  std::vector<int32_t> own;
  for (const std::string& word : field.categories) own.push_back(known.of(word));
  std::vector<double> values(codes.size());
  read_doubles(field, begin, end, values);
  for (size_t i = 0; i < codes.size(); ++i) {
    if (std::isnan(values[i])) {
      codes[i] = kMissingCode;
    } else {  // as the word that a table of words would have
      codes[i] = coded ? own[size_t(values[i])] : known.of(fmt::format("{}", values[i]));
    }
  }
  return codes;
}

double NumberFeature::transform(double value) const {
  if (clip) value = std::clamp(value, clip->first, clip->second);
  return log ? std::copysign(std::log1p(std::abs(value)), value) : value;
}

void NumberFeature::apply(const Field& from, int64_t begin, int64_t end, double* out,
                          int64_t stride) const {
  check_kind(from, boolean);
  check_shape(from, shape);
  const auto count = size_t(elements());
  std::vector<double> values(size_t(end - begin) * count);
  read_doubles(from, begin, end, values);
  for (int64_t i = begin; i < end; ++i, out += stride) {
    const double* in = values.data() + size_t(i - begin) * count;
    for (size_t e = 0; e < count; ++e) {
      const bool there = in[e] == in[e];
      if (!there && fill.empty()) refuse_missing(from, i);
      if (std::isinf(in[e])) refuse_infinite(from, i);
      if (boolean && there && in[e] != 0 && in[e] != 1) refuse_truth(from, i, in[e]);
      out[e] = (transform(there ? in[e] : fill[e]) - shift[e]) * scale[e];
      if (missing == MissingRule::indicator) out[count + e] = there ? 0.0 : 1.0;
    }
  }
}

int64_t CategoryFeature::width() const {
  if (coding == CategoryCoding::codes) return 0;
  return int64_t(categories.size()) + (missing == MissingRule::indicator ? 1 : 0);
}

int64_t CategoryFeature::code_count() const {
  return int64_t(categories.size()) + (fill.empty() ? 0 : 1);
}

void CategoryFeature::apply(const Field& from, int64_t begin, int64_t end, double* out,
                            int64_t stride) const {
  if (coding == CategoryCoding::codes) return;
  std::vector<int32_t> codes(static_cast<size_t>(end - begin));
  apply_codes(from, begin, end, codes.data(), 1);
  const size_t count = categories.size();
  for (const int32_t code : codes) {
    const bool there = size_t(code) < count;
    if (there) {
      std::fill_n(out, width(), 0.0);
      out[code] = 1.0;
    } else {
      std::ranges::copy(fill, out);
      if (missing == MissingRule::indicator) out[count] = 1.0;
    }
    out += stride;
  }
}

void CategoryFeature::apply_codes(const Field& from, int64_t begin, int64_t end, int32_t* out,
                                  int64_t stride) const {
  const std::vector<int32_t> codes = codes_by_name(from, begin, end, categories);
  for (size_t i = 0; i < codes.size(); ++i, out += stride) {
    const int64_t sample = begin + int64_t(i);
    if (codes[i] == kUnseenCode && unseen == UnseenRule::refuse) {
      throw_error(
          ErrorKind::data, "{}: field {}: {} of sample {} was not seen in training; known are {}{}",
          from.origin, quote(field), quote(word_at(from, sample)), sample,
          printable(fmt::format(
              "{}", fmt::join(std::span(categories).first(std::min<size_t>(categories.size(), 10)),
                              ", "))),
          categories.size() > 10 ? ", ..." : "");
    }
    const bool there = codes[i] >= 0;
    if (codes[i] == kMissingCode && missing == MissingRule::refuse) refuse_missing(from, sample);
    *out = there ? codes[i] : int32_t(categories.size());
  }
}

ImageOptions folder_options(const Shape& shape) {
  const int rank = shape.rank();
  const int64_t channels = rank == 2 ? 1 : rank == 3 ? shape[0] : 0;
  if (channels != 1 && channels != 3) return {};
  ImageOptions options;
  options.channels = int(channels);
  options.height = shape[rank - 2];
  options.width = shape[rank - 1];
  return options;
}

void ImageFeature::apply(const Field& from, int64_t begin, int64_t end, double* out,
                         int64_t stride) const {
  check_shape(from, shape);
  if (from.dtype != DType::uint8) {
    throw_error(ErrorKind::data, "{}: field {} holds {}, but images are bytes (uint8)", from.origin,
                quote(from.name), name(from.dtype));
  }
  const auto count = size_t(width());
  std::vector<uint8_t> bytes(size_t(end - begin) * count);
  from.values->read(begin, end, std::as_writable_bytes(std::span(bytes)));
  for (int64_t i = 0; i < end - begin; ++i, out += stride) {
    const uint8_t* in = bytes.data() + size_t(i) * count;
    for (size_t e = 0; e < count; ++e) out[e] = scaling(in[e]);
  }
}

const std::string& field_of(const Feature& feature) {
  return std::visit(
      [](const auto& f) -> const std::string& {
        if constexpr (requires { f.field; }) {
          return f.field;
        } else {
          return f.timestep.field;
        }
      },
      feature);
}

int64_t width_of(const Feature& feature) {
  return std::visit([](const auto& f) { return f.width(); }, feature);
}

std::vector<std::string> names_of(const Feature& feature) {
  std::vector<std::string> names;
  const auto elements = [&](const std::string& field, const Shape& shape) {
    if (shape.rank() == 0) {
      names.push_back(field);
      return;
    }
    for (int64_t e = 0; e < shape.numel(); ++e) names.push_back(fmt::format("{}[{}]", field, e));
  };
  if (const auto* number = std::get_if<NumberFeature>(&feature)) {
    elements(number->field, number->shape);
    if (number->missing == MissingRule::indicator) {
      const std::vector<std::string> values = names;
      for (const std::string& name : values) names.push_back(name + " is missing");
    }
  } else if (const auto* category = std::get_if<CategoryFeature>(&feature)) {
    if (category->coding == CategoryCoding::codes) return names;
    for (const std::string& word : category->categories) {
      names.push_back(fmt::format("{}={}", category->field, word));
    }
    if (category->missing == MissingRule::indicator) {
      names.push_back(category->field + " is missing");
    }
  } else if (const auto* image = std::get_if<ImageFeature>(&feature)) {
    elements(image->field, image->shape);
  } else {
    const auto& sequence = std::get<SequenceFeature>(feature);
    const std::vector<std::string> each = names_of(Feature(sequence.timestep));
    for (int64_t t = 0; t < sequence.length; ++t) {
      for (const std::string& name : each) names.push_back(fmt::format("{} at {}", name, t));
    }
  }
  return names;
}

}  // namespace ridgeline::data
