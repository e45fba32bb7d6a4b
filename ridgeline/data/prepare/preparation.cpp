#include "ridgeline/data/prepare/preparation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ridgeline/core/text_format.h"
#include "ridgeline/data/prepare/refusals.h"

namespace ridgeline::data {
namespace {

constexpr int64_t kBlockBytes = int64_t{4} << 20;  // of doubles made at a time

// Throws if a number of the block, whose first sample is `begin`, would be infinite as a T.
template <typename T>
void check_range(const std::vector<Feature>& features, int64_t width, const FieldSet& set,
                 int64_t begin, std::span<const double> block) {
  constexpr auto kMost = double(std::numeric_limits<T>::max());
  const auto found = std::ranges::find_if(block, [](double v) { return !(std::abs(v) <= kMost); });
  if (found == block.end()) return;
  const int64_t at = found - block.begin();
  int64_t left = at % width;
  for (const Feature& feature : features) {
    if (left < width_of(feature))
      refuse_too_large(set.field(field_of(feature)), begin + at / width);
    left -= width_of(feature);
  }
}

template <typename T>
void apply_as(const std::vector<Feature>& features, int64_t width, const FieldSet& set,
              int64_t begin, int64_t end, std::span<T> out) {
  if (width == 0) return;
  const int64_t most = std::max<int64_t>(1, kBlockBytes / int64_t(sizeof(double)) / width);
  std::vector<double> block;
  for (int64_t at = begin; at < end; at += most) {
    const int64_t stop = std::min(end, at + most);
    block.resize(size_t((stop - at) * width));
    int64_t place = 0;
    for (const Feature& feature : features) {
      const Field& field = set.field(field_of(feature));
      std::visit([&](const auto& f) { f.apply(field, at, stop, block.data() + place, width); },
                 feature);
      place += width_of(feature);
    }
    check_range<T>(features, width, set, at, block);
    std::ranges::transform(block, out.begin() + ptrdiff_t((at - begin) * width),
                           [](double value) { return T(value); });
  }
}

}  // namespace

int64_t Preparation::width() const {
  int64_t sum = 0;
  for (const Feature& feature : features_) sum += width_of(feature);
  return sum;
}

Shape Preparation::input_shape() const {
  Shape shape{width()};
  if (features_.size() == 1) {
    if (const auto* image = std::get_if<ImageFeature>(&features_.front())) shape = image->shape;
    if (const SequenceFeature* steps = sequence()) {
      return steps->tokens > 0 ? Shape{steps->length}
                               : Shape{steps->length, steps->timestep.width()};
    }
    const auto* number = std::get_if<NumberFeature>(&features_.front());
    if (number != nullptr && number->shape.rank() > 0 && number->width() == number->elements()) {
      shape = number->shape;
    }
  }
  return windows_ ? shape.prepend(windows_->window) : shape;
}

const SequenceFeature* Preparation::sequence() const {
  return features_.size() == 1 ? std::get_if<SequenceFeature>(&features_.front()) : nullptr;
}

std::vector<std::string> Preparation::input_names() const {
  std::vector<std::string> names;
  for (const Feature& feature : features_) {
    for (std::string& name : names_of(feature)) names.push_back(std::move(name));
  }
  return names;
}

std::vector<const CategoryFeature*> Preparation::coded() const {
  std::vector<const CategoryFeature*> result;
  for (const Feature& feature : features_) {
    const auto* category = std::get_if<CategoryFeature>(&feature);
    if (category != nullptr && category->coding == CategoryCoding::codes) {
      result.push_back(category);
    }
  }
  return result;
}

void Preparation::apply(const FieldSet& set, int64_t begin, int64_t end,
                        std::span<float> out) const {
  apply_as(features_, width(), set, begin, end, out);
}

void Preparation::apply(const FieldSet& set, int64_t begin, int64_t end,
                        std::span<double> out) const {
  apply_as(features_, width(), set, begin, end, out);
}

void Preparation::apply_codes(const FieldSet& set, int64_t begin, int64_t end,
                              std::span<int32_t> out) const {
  const auto columns = coded();
  for (size_t c = 0; c < columns.size(); ++c) {
    columns[c]->apply_codes(set.field(columns[c]->field), begin, end, out.data() + c,
                            int64_t(columns.size()));
  }
}

TableOptions Preparation::table_options() const {
  TableOptions options;
  for (const Feature& feature : features_) {
    if (std::holds_alternative<CategoryFeature>(feature)) {
      options.categories.push_back(field_of(feature));
    }
  }
  return options;
}

ImageOptions Preparation::image_options() const {
  for (const Feature& feature : features_) {
    if (const auto* image = std::get_if<ImageFeature>(&feature)) return image->options;
  }
  return {};
}

}  // namespace ridgeline::data
