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

// How the fields of a set become a model's inputs and targets: learnt from the training samples,
// saved with the model, and applied alike to whatever the model sees later. The same values give
// the same bits whenever and in whatever ranges they are prepared.
class Preparation {
 public:
  // Learns from the samples `train`, ascending, of the set. Throws usage for rules that do not fit
  // the fields, and data for values that the rules do not allow.
  static Preparation fit(const FieldSet& set, std::span<const int64_t> train,
                         const PrepareRules& rules);

  const std::vector<Feature>& features() const { return features_; }
  const std::optional<Target>& target() const { return target_; }
  const std::optional<WindowRule>& windows() const { return windows_; }
  // Fields that were left out because they are texts and no features were named.
  const std::vector<std::string>& left_out() const { return left_out_; }

  // The shape of a sample's floats is the field's own if there is one of numbers or pixels, else
  // [width]. Windows put their length before it.
  Shape input_shape() const;
  int64_t width() const;                         // floats a sample (a timestep, with windows)
  std::vector<std::string> input_names() const;  // width() of them
  // The one feature of samples that are sequences, each of its own length; null: there is none.
  const SequenceFeature* sequence() const;
  // Categories that go as codes to embeddings, in the order of the features.
  std::vector<const CategoryFeature*> coded() const;

  // The samples [begin, end) as [samples][width()]; fields are found by name. Throws data when one
  // is missing or of another kind or shape than in training.
  void apply(const FieldSet& set, int64_t begin, int64_t end, std::span<float> out) const;
  void apply(const FieldSet& set, int64_t begin, int64_t end, std::span<double> out) const;
  // [samples][coded().size()]
  void apply_codes(const FieldSet& set, int64_t begin, int64_t end, std::span<int32_t> out) const;

  // How a table must be read to give the kinds of fields that this wants.
  TableOptions table_options() const;
  // How a folder of images must be.
  ImageOptions image_options() const;

  // JSON text, which gives an equal preparation. Reading is strict: unknown and repeated keys,
  // wrong types, numbers that are not finite and lists of the wrong length are refused with an
  // Error of `kind` that begins with `origin`.
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
