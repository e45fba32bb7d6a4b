#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ridgeline/data/field_set.h"
#include "ridgeline/data/image_options.h"
#include "ridgeline/data/prepare/rules.h"

namespace ridgeline::data {

// The fitted preparation of a field: enough to turn its values into inputs. Each writes
// width() numbers per sample, `stride` apart, and throws Error(data) with the field and the
// sample for an invalid value: missing where none is allowed, infinite, or an unseen
// category.

// Numbers and booleans: y = (f(clip(x)) - shift) * scale for each element of a sample, where f is
// the logarithm or the identity. With indicators, as many features follow that are 1 if a value is
// missing.
struct NumberFeature {
  std::string field;
  Shape shape;           // of a sample
  bool boolean = false;  // 0 and 1, for false and true
  std::optional<std::pair<double, double>> clip{};
  bool log = false;
  MissingRule missing = MissingRule::refuse;
  std::vector<double> shift, scale;  // one per element
  std::vector<double> fill;          // replaces a missing value, before f; empty: refused

  int64_t elements() const { return shape.numel(); }
  int64_t width() const { return elements() * (missing == MissingRule::indicator ? 2 : 1); }
  void apply(const Field& from, int64_t begin, int64_t end, double* out, int64_t stride) const;
  // Applies only clip and f; shift and scale are fitted to the result.
  double transform(double value) const;

  bool operator==(const NumberFeature&) const = default;
};

// One of several categories: one-hot, or a code for an embedding.
struct CategoryFeature {
  std::string field;
  std::vector<std::string> categories;  // in byte order
  CategoryCoding coding = CategoryCoding::one_hot;
  MissingRule missing = MissingRule::refuse;
  UnseenRule unseen = UnseenRule::refuse;
  // Frequencies of the categories, for missing values; empty if none may be missing.
  std::vector<double> fill;

  // The number of floats; codes are separate.
  int64_t width() const;
  int64_t code_count() const;  // number of codes, including that of missing values
  void apply(const Field& from, int64_t begin, int64_t end, double* out, int64_t stride) const;
  void apply_codes(const Field& from, int64_t begin, int64_t end, int32_t* out,
                   int64_t stride) const;

  bool operator==(const CategoryFeature&) const = default;
};

// Bytes of pixels: y = byte * scale + shift, in floats as a device's gather computes it.
struct ImageFeature {
  std::string field;
  Shape shape;  // [height, width], [channels, height, width] or another of rank 2 or more
  ImageOptions options{};  // how a folder of images must be opened to get this shape, if it can
  Scaling scaling{};

  int64_t width() const { return shape.numel(); }
  void apply(const Field& from, int64_t begin, int64_t end, double* out, int64_t stride) const;

  bool operator==(const ImageFeature&) const = default;
};

// Returns the options by which a folder of images gives samples of this shape; none if it cannot,
// because the images of folders have one channel or three, and these come first.
ImageOptions folder_options(const Shape& shape);

// Timesteps, of any number per sample. A prepared sample is [length][width of a timestep], with
// zeros after its last timestep, together with its number of timesteps. A field of numbers
// [timesteps, ...] is a sequence whose samples have one length.
struct SequenceFeature {
  NumberFeature timestep{};  // has the field's name
  int64_t length = 0;
  bool cut = false;    // longer samples are truncated; otherwise they are refused
  int64_t tokens = 0;  // above 0: timesteps are integers below this, and nothing is scaled

  int64_t width() const { return length * timestep.width(); }
  void apply(const Field& from, int64_t begin, int64_t end, double* out, int64_t stride) const;
  void lengths(const Field& from, int64_t begin, int64_t end, std::span<int32_t> out) const;

  bool operator==(const SequenceFeature&) const = default;
};

using Feature = std::variant<NumberFeature, CategoryFeature, ImageFeature, SequenceFeature>;

const std::string& field_of(const Feature& feature);
int64_t width_of(const Feature& feature);
// Returns the names of the numbers that a feature produces: "age", "x[3]", "kind=cat", "age is
// missing".
std::vector<std::string> names_of(const Feature& feature);

// Returns the codes of a category, boolean or text field in terms of `categories`; kMissingCode for
// a missing value, kUnseenCode for another word.
constexpr int32_t kUnseenCode = -2;
std::vector<int32_t> codes_by_name(const Field& field, int64_t begin, int64_t end,
                                   std::span<const std::string> categories);

}  // namespace ridgeline::data
