#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ridgeline/core/buffer.h"
#include "ridgeline/data/field_values.h"

namespace ridgeline::data {

enum class FieldKind {
  number,    // of any dtype; NaN in a float field is a missing value
  boolean,   // uint8: 0, 1 or kMissingBoolean; `categories` are the words for 0 and 1
  category,  // int32: a code of `categories`, or kMissingCode
  text,      // UTF-8 bytes, of any length
  sequence,  // timesteps (tokens, or vectors), of any length
};
std::string_view name(FieldKind kind);

constexpr int32_t kMissingCode = -1;
constexpr uint8_t kMissingBoolean = 255;

// A named property that every sample has.
struct Field {
  std::string name;
  FieldKind kind = FieldKind::number;
  DType dtype = DType::fp32;
  Shape shape;  // of a sample; of a timestep in a sequence; [] for a single value
  int64_t samples = 0;
  std::vector<std::string> categories{};  // by code, in byte order
  std::shared_ptr<const FieldValues> values{};
  // For text and sequences: sample i has the rows [offsets[i], offsets[i + 1]) of the values.
  std::shared_ptr<const std::vector<int64_t>> offsets{};
  std::string origin{};  // the file it came from, for messages
  std::string stored{};  // the stored type, if it is not the dtype: "int16, big-endian"

  bool has_lengths() const { return offsets != nullptr; }
  int64_t rows() const { return has_lengths() ? offsets->back() : samples; }
  size_t row_bytes() const { return size_t(shape.numel()) * size_of(dtype); }
  // The bytes of all values, in memory or not, without lengths.
  int64_t bytes() const { return rows() * int64_t(row_bytes()); }
};

// A field that owns its values: `values` is [samples, ...].
Field number_field(std::string name, HostTensor values);
// A field over the caller's values, in host memory that outlives it.
Field borrowed_field(std::string name, const Tensor& values);
Field category_field(std::string name, std::span<const int32_t> codes,
                     std::vector<std::string> categories);
// `words` are those for false and true, as written in the file.
Field boolean_field(std::string name, std::span<const uint8_t> values,
                    std::vector<std::string> words = {"false", "true"});
Field text_field(std::string name, std::span<const char> bytes, std::vector<int64_t> offsets);
// `timesteps` is [all timesteps, ...]; sample i has lengths[i] of them, one sample after another.
Field sequence_field(std::string name, HostTensor timesteps, std::span<const int64_t> lengths);

// Returns the field with its values in memory.
Field load(const Field& field);

// Reads the given samples of a field without lengths, in that order. Neighbours are read together.
void gather(const Field& field, std::span<const int64_t> samples, std::span<std::byte> out);

// Reads numbers, booleans and codes as doubles; a missing value is NaN. `out` holds the elements of
// the rows [begin, end).
void read_doubles(const Field& field, int64_t begin, int64_t end, std::span<double> out);

// Reads only the given samples, which must ascend, of a field without lengths.
void read_doubles(const Field& field, std::span<const int64_t> samples, std::span<double> out);

// Returns the text of sample i.
std::string read_text(const Field& field, int64_t i);

// Samples as named fields: a source produces them, and a preparation turns them into inputs and
// targets.
class FieldSet {
 public:
  FieldSet() = default;
  explicit FieldSet(std::string name) : name_(std::move(name)) {}

  // Throws Error(data) if the field's number of samples differs, or if its name is
  // taken.
  void add(Field field);

  const std::string& name() const { return name_; }
  int64_t size() const { return fields_.empty() ? 0 : fields_.front().samples; }
  const std::vector<Field>& fields() const { return fields_; }
  const Field* find(std::string_view name) const;   // nullptr if missing
  const Field& field(std::string_view name) const;  // throws Error(data), with the existing names
  int64_t bytes() const;

 private:
  std::string name_;
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::vector<Field> fields_;
  std::unordered_map<std::string, size_t, Hash, std::equal_to<>> places_;  // of names in fields_
};

}  // namespace ridgeline::data
