#include "ridgeline/data/field_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"

namespace ridgeline::data {
namespace {

template <typename T>
Buffer copy_of(std::span<const T> values) {
  Buffer buffer(values.size_bytes());
  if (!values.empty()) std::memcpy(buffer.data(), values.data(), values.size_bytes());
  return buffer;
}

// Fills in the parts of a field that follow from its tensor. The first axis is that of the rows.
Field shaped_field(std::string name, FieldKind kind, const Tensor& values) {
  if (values.shape.rank() < 1) {
    throw_error(ErrorKind::data, "field '{}': a single number has no samples; give an array", name);
  }
  Field field;
  field.name = std::move(name);
  field.kind = kind;
  field.dtype = values.dtype;
  field.shape = values.shape.drop_front();
  field.samples = values.shape[0];
  return field;
}

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.data), tensor.bytes()};
}

std::shared_ptr<const FieldValues> tensor_values(HostTensor tensor, size_t row_bytes) {
  auto owner = std::make_shared<const HostTensor>(std::move(tensor));
  const auto bytes = bytes_of(owner->view());
  return std::make_shared<MemoryValues>(bytes, row_bytes, std::move(owner));
}

void set_lengths(Field& field, std::span<const int64_t> lengths) {
  std::vector<int64_t> offsets{0};
  offsets.reserve(lengths.size() + 1);
  for (const int64_t length : lengths) {
    if (length < 0) {
      throw_error(ErrorKind::data, "field '{}': sample {} has the length {}", field.name,
                  offsets.size() - 1, length);
    }
    offsets.push_back(checked_add(offsets.back(), length, "lengths of a sequence"));
  }
  if (offsets.back() != field.samples) {
    throw_error(ErrorKind::data, "field '{}': its lengths sum to {}, but there are {}", field.name,
                offsets.back(), counted(field.samples, "timestep"));
  }
  field.samples = int64_t(lengths.size());
  field.offsets = std::make_shared<const std::vector<int64_t>>(std::move(offsets));
}

template <typename T>
void to_doubles(const std::byte* bytes, std::span<double> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    if constexpr (std::is_same_v<T, Fp16> || std::is_same_v<T, Bf16>) {
      out[i] = double(float(value));
    } else {
      out[i] = double(value);
    }
  }
}

void to_doubles(DType dtype, const std::byte* bytes, std::span<double> out) {
  switch (dtype) {
    case DType::fp64:
      return to_doubles<double>(bytes, out);
    case DType::fp32:
      return to_doubles<float>(bytes, out);
    case DType::bf16:
      return to_doubles<Bf16>(bytes, out);
    case DType::fp16:
      return to_doubles<Fp16>(bytes, out);
    case DType::int32:
      return to_doubles<int32_t>(bytes, out);
    case DType::int64:
      return to_doubles<int64_t>(bytes, out);
    case DType::uint8:
      return to_doubles<uint8_t>(bytes, out);
  }
}

}  // namespace

std::string_view name(FieldKind kind) {
  switch (kind) {
    case FieldKind::number:
      return "number";
    case FieldKind::boolean:
      return "boolean";
    case FieldKind::category:
      return "category";
    case FieldKind::text:
      return "text";
    case FieldKind::sequence:
      return "sequence";
  }
  return "unknown";
}

Field number_field(std::string name, HostTensor values) {
  Field field = shaped_field(std::move(name), FieldKind::number, values.view());
  field.values = tensor_values(std::move(values), field.row_bytes());
  return field;
}

Field borrowed_field(std::string name, const Tensor& values) {
  Field field = shaped_field(std::move(name), FieldKind::number, values);
  field.values = std::make_shared<MemoryValues>(bytes_of(values), field.row_bytes());
  return field;
}

Field category_field(std::string name, std::span<const int32_t> codes,
                     std::vector<std::string> categories) {
  Field field;
  field.name = std::move(name);
  field.kind = FieldKind::category;
  field.dtype = DType::int32;
  field.samples = int64_t(codes.size());
  field.categories = std::move(categories);
  field.values = owned_values(copy_of(codes), sizeof(int32_t));
  return field;
}

Field boolean_field(std::string name, std::span<const uint8_t> values,
                    std::vector<std::string> words) {
  Field field;
  field.name = std::move(name);
  field.kind = FieldKind::boolean;
  field.dtype = DType::uint8;
  field.samples = int64_t(values.size());
  field.categories = std::move(words);
  field.values = owned_values(copy_of(values), 1);
  return field;
}

Field text_field(std::string name, std::span<const char> bytes, std::vector<int64_t> offsets) {
  Field field;
  field.name = std::move(name);
  field.kind = FieldKind::text;
  field.dtype = DType::uint8;
  field.samples = int64_t(offsets.size()) - 1;
  field.values = owned_values(copy_of(bytes), 1);
  field.offsets = std::make_shared<const std::vector<int64_t>>(std::move(offsets));
  return field;
}

Field sequence_field(std::string name, HostTensor timesteps, std::span<const int64_t> lengths) {
  Field field = shaped_field(std::move(name), FieldKind::sequence, timesteps.view());
  set_lengths(field, lengths);
  field.values = tensor_values(std::move(timesteps), field.row_bytes());
  return field;
}

Field load(const Field& field) {
  Buffer bytes(size_t(field.bytes()));
  field.values->read(0, field.rows(), {bytes.data(), bytes.size()});
  Field loaded = field;
  loaded.values = owned_values(std::move(bytes), field.row_bytes());
  return loaded;
}

void gather(const Field& field, std::span<const int64_t> samples, std::span<std::byte> out) {
  const size_t width = field.row_bytes();
  for (size_t at = 0; at < samples.size();) {
    size_t run = 1;
    while (at + run < samples.size() && samples[at + run] == samples[at] + int64_t(run)) ++run;
    field.values->read(samples[at], samples[at] + int64_t(run),
                       out.subspan(at * width, run * width));
    at += run;
  }
}

namespace {

void mark_missing(const Field& field, std::span<double> values) {
  if (field.kind != FieldKind::category && field.kind != FieldKind::boolean) return;
  const double missing = field.kind == FieldKind::category ? kMissingCode : kMissingBoolean;
  std::ranges::replace(values, missing, std::numeric_limits<double>::quiet_NaN());
}

}  // namespace

void read_doubles(const Field& field, int64_t begin, int64_t end, std::span<double> out) {
  const size_t bytes = size_t(end - begin) * field.row_bytes();
  std::vector<std::byte> copy;
  const std::span<const std::byte> all = field.values->map();
  const std::byte* from = nullptr;
  if (all.empty()) {
    copy.resize(bytes);
    field.values->read(begin, end, copy);
    from = copy.data();
  } else {
    from = all.data() + size_t(begin) * field.row_bytes();
  }
  to_doubles(field.dtype, from, out);
  field.values->check_map();
  mark_missing(field, out);
}

void read_doubles(const Field& field, std::span<const int64_t> samples, std::span<double> out) {
  const auto elements = size_t(field.shape.numel());
  const std::span<const std::byte> all = field.values->map();
  std::vector<double> window;
  for (size_t at = 0; at < samples.size();) {
    // Neighbours are converted in place. Samples that must be read are read together with those
    // between them if at least every fourth one is wanted.
    const int64_t gap = all.empty() ? 4 : 1;
    size_t end = at + 1;
    while (end < samples.size() && samples[end] - samples[end - 1] <= gap) ++end;
    const int64_t begin = samples[at], last = samples[end - 1];
    double* const to = out.data() + at * elements;
    if (!all.empty()) {
      to_doubles(field.dtype, all.data() + size_t(begin) * field.row_bytes(),
                 {to, (end - at) * elements});
    } else {
      window.resize(size_t(last + 1 - begin) * elements);
      read_doubles(field, begin, last + 1, window);
      for (size_t i = at; i < end; ++i) {
        const auto from = window.begin() + ptrdiff_t(size_t(samples[i] - begin) * elements);
        std::copy_n(from, elements, to + (i - at) * elements);
      }
    }
    at = end;
  }
  if (all.empty()) return;
  field.values->check_map();
  mark_missing(field, out);
}

std::string read_text(const Field& field, int64_t i) {
  const int64_t begin = (*field.offsets)[size_t(i)], end = (*field.offsets)[size_t(i) + 1];
  std::string text(size_t(end - begin), '\0');
  field.values->read(begin, end, std::as_writable_bytes(std::span(text)));
  return text;
}

void FieldSet::add(Field field) {
  if (find(field.name) != nullptr) {
    throw_error(ErrorKind::data, "{}: two fields are named {}; rename one", name_,
                quote(field.name));
  }
  if (!fields_.empty() && field.samples != size()) {
    throw_error(ErrorKind::data, "{}: field {} has {}, but {} has {}; they are not of the same set",
                name_, quote(field.name), counted(field.samples, "sample"),
                quote(fields_.front().name), size());
  }
  places_.emplace(field.name, fields_.size());
  fields_.push_back(std::move(field));
}

const Field* FieldSet::find(std::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &fields_[found->second];
}

const Field& FieldSet::field(std::string_view name) const {
  if (const Field* found = find(name)) return *found;
  std::vector<std::string_view> names;
  for (const Field& field : fields_) names.push_back(field.name);
  const std::string near = nearest(name, names);
  constexpr size_t kShown = 20;
  const bool more = names.size() > kShown;
  if (more) names.resize(kShown);
  throw_error(ErrorKind::data, "{}: no field {}; {}", name_, quote(name),
              near.empty() ? printable(fmt::format("there are {}{}", fmt::join(names, ", "),
                                                   more ? ", ..." : ""))
                           : fmt::format("did you mean {}?", quote(near)));
}

int64_t FieldSet::bytes() const {
  int64_t sum = 0;
  for (const Field& field : fields_) sum += field.bytes();
  return sum;
}

}  // namespace ridgeline::data
