#include <algorithm>
#include <cmath>

#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/data/prepare/feature.h"

namespace ridgeline::data {
namespace {

// The timesteps of some samples, one after another.
struct Timesteps {
  std::vector<int64_t> offsets;  // of each sample, and the end
  std::vector<double> values;
};

bool is_sequence(const Field& field) { return field.kind == FieldKind::sequence; }

Shape timestep_shape(const Field& field) {
  return is_sequence(field) ? field.shape : field.shape.drop_front();
}

void check_timesteps(const Field& field, const Shape& want) {
  const bool numbers = field.kind == FieldKind::number && field.shape.rank() > 0;
  if (!is_sequence(field) && !numbers) {
    throw_error(ErrorKind::data,
                "{}: field {} holds a {} a sample, but a sequence is wanted, as in training",
                field.origin, quote(field.name), name(field.kind));
  }
  const Shape found = timestep_shape(field);
  if (found == want) return;
  throw_error(ErrorKind::data, "{}: field {} is {} a timestep, but it was {} in training",
              field.origin, quote(field.name), to_string(found), to_string(want));
}

int64_t length_of(const Field& field, int64_t sample) {
  if (!is_sequence(field)) return field.shape[0];
  return (*field.offsets)[size_t(sample) + 1] - (*field.offsets)[size_t(sample)];
}

Timesteps read_timesteps(const Field& field, int64_t begin, int64_t end) {
  Timesteps result;
  result.offsets.push_back(0);
  for (int64_t i = begin; i < end; ++i) {
    result.offsets.push_back(result.offsets.back() + length_of(field, i));
  }
  result.values.resize(size_t(result.offsets.back() * timestep_shape(field).numel()));
  const auto& offsets = field.offsets;
  read_doubles(field, is_sequence(field) ? (*offsets)[size_t(begin)] : begin,
               is_sequence(field) ? (*offsets)[size_t(end)] : end, result.values);
  return result;
}

[[noreturn]] void refuse(const Field& field, int64_t sample, int64_t timestep,
                         const std::string& what) {
  throw_error(ErrorKind::data, "{}: field {}: timestep {} of sample {} {}", field.origin,
              quote(field.name), timestep, sample, what);
}

}  // namespace

void SequenceFeature::lengths(const Field& from, int64_t begin, int64_t end,
                              std::span<int32_t> out) const {
  check_timesteps(from, timestep.shape);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t own = length_of(from, i);
    if (own > length && !cut) {
      throw_error(ErrorKind::data,
                  "{}: field {}: sample {} has {}, but the model takes {} at most; train it with a "
                  "larger data.length, or cut the sample",
                  from.origin, quote(from.name), i, counted(own, "timestep"), length);
    }
    out[size_t(i - begin)] = int32_t(std::min(own, length));
  }
}

void SequenceFeature::apply(const Field& from, int64_t begin, int64_t end, double* out,
                            int64_t stride) const {
  std::vector<int32_t> kept(static_cast<size_t>(end - begin));
  lengths(from, begin, end, kept);
  const Timesteps all = read_timesteps(from, begin, end);
  const int64_t elements = timestep.elements(), each = timestep.width();
  // NumberFeature::apply takes a field of one timestep per sample; errors are named here.
  HostTensor rows(DType::fp64, timestep.shape.prepend(std::max<int64_t>(1, length)));
  Field field = borrowed_field(from.name, rows.view());
  field.origin = from.origin;
  for (int64_t i = 0; i < end - begin; ++i, out += stride) {
    const double* in = all.values.data() + all.offsets[size_t(i)] * elements;
    const int64_t count = kept[size_t(i)];
    for (int64_t e = 0; e < count * elements; ++e) {
      const double value = in[e];
      const int64_t at = e / elements;
      if (std::isnan(value) && timestep.fill.empty()) refuse(from, begin + i, at, "is missing");
      if (std::isinf(value)) refuse(from, begin + i, at, "is infinite");
      if (tokens > 0 && !(value >= 0 && value < double(tokens) && value == std::floor(value))) {
        refuse(from, begin + i, at,
               fmt::format("is {}, but the embedding knows {} (0 to {})", value,
                           counted(tokens, "token"), tokens - 1));
      }
    }
    std::copy_n(in, count * elements, rows.span<double>().begin());
    timestep.apply(field, 0, count, out, each);
    std::fill(out + count * each, out + length * each, 0.0);
  }
}

}  // namespace ridgeline::data
