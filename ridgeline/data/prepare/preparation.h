#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/core/error.h"
#include "ridgeline/data/prepare/feature.h"
#include "ridgeline/data/prepare/target.h"
#include "ridgeline/data/table_options.h"

namespace ridgeline::data {

// Turns the fields of a set into a model's inputs and targets: fitted to the training samples,
// saved with the model, and applied to all later data. The same values give the same bits, however
// the samples are divided into ranges.
class Preparation {
 public:
  // Fits to the samples `train`, ascending, of the set. Throws Error(usage) for rules that do not
  // fit the fields, and Error(data) for values that the rules do not allow.
  static Preparation fit(const FieldSet& set, std::span<const int64_t> train,
                         const PrepareRules& rules);

  const std::vector<Feature>& features() const { return features_; }
  const std::optional<Target>& target() const { return target_; }
  const std::optional<WindowRule>& windows() const { return windows_; }
  // Fields that were left out because they are texts and no features were named.
  const std::vector<std::string>& left_out() const { return left_out_; }

  // A sample's floats have the field's own shape if there is a single field of numbers or pixels,
  // else [width]. Windows prepend their length.
  Shape input_shape() const;
  int64_t width() const;                         // floats per sample (per timestep, with windows)
  std::vector<std::string> input_names() const;  // width() of them
  // The only feature of samples that are sequences with lengths; null if there is none.
  const SequenceFeature* sequence() const;
  // The categories that become codes for embeddings, in the order of the features.
  std::vector<const CategoryFeature*> coded() const;

  // Writes the samples [begin, end) as [samples][width()]; fields are found by name. Throws
  // Error(data) if one is missing or has another kind or shape than in training.
  void apply(const FieldSet& set, int64_t begin, int64_t end, std::span<float> out) const;
  void apply(const FieldSet& set, int64_t begin, int64_t end, std::span<double> out) const;
  // [samples][coded().size()]
  void apply_codes(const FieldSet& set, int64_t begin, int64_t end, std::span<int32_t> out) const;

  // The options with which a table must be read to get the right kinds of fields.
  TableOptions table_options() const;
  // The options for a folder of images.
  ImageOptions image_options() const;

  // Converts to JSON text, which reads back as an equal preparation. Reading is strict: unknown and
  // repeated keys, wrong types, numbers that are not finite and lists of the wrong length are
  // refused with an Error of `kind` that begins with `origin`.
  std::string to_json() const;
  static Preparation from_json(std::string_view text, const std::string& origin,
                               ErrorKind kind = ErrorKind::model);

  bool operator==(const Preparation&) const = default;

 private:
  std::vector<Feature> features_;
  std::optional<Target> target_;
  std::optional<WindowRule> windows_;
  std::vector<std::string> left_out_;
};

}  // namespace ridgeline::data
