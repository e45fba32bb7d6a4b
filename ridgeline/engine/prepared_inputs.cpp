#include "ridgeline/engine/prepared_inputs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "ridgeline/core/text.h"
#include "ridgeline/core/text_format.h"
#include "ridgeline/core/widest_vectors.h"

namespace ridgeline::engine {
namespace {

using data::Field;
using data::FieldSet;
using data::Preparation;

// Returns the feature of a model whose only inputs are pixels, or null.
const data::ImageFeature* only_image(const Preparation& preparation) {
  if (preparation.features().size() != 1 || preparation.windows()) return nullptr;
  return std::get_if<data::ImageFeature>(&preparation.features().front());
}

void gather_pixels(const FieldSet& set, const data::ImageFeature& image,
                   std::span<const int64_t> samples, std::span<std::byte> out) {
  const Field& field = set.field(image.field);
  if (field.dtype != DType::uint8 || !(field.shape == image.shape)) {
    throw_error(ErrorKind::data, "{}: {} holds {} {}, but the model takes images of uint8 {}",
                field.origin, quote(field.name), name(field.dtype), to_string(field.shape),
                to_string(image.shape));
  }
  gather(field, samples, out);
}

// Prepares the timesteps that the windows at `starts` need, and copies the windows out of them.
void fill_windows(const FieldSet& set, const Preparation& preparation,
                  std::span<const int64_t> starts, std::span<float> out) {
  const data::WindowRule& rule = *preparation.windows();
  const int64_t begin = starts.front(), end = starts.back() + rule.window;
  std::vector<float> timesteps(size_t((end - begin) * preparation.width()));
  preparation.apply(set, begin, end, std::span<float>(timesteps));
  std::vector<int64_t> local(starts.begin(), starts.end());
  for (int64_t& start : local) start -= begin;
  data::gather_windows<float>(timesteps, preparation.width(), local, rule, out);
}

// Tokens are exact as floats, because there are at most 2^24.
void make_tokens(const FieldSet& set, const Preparation& preparation,
                 std::span<const int64_t> samples, std::span<int32_t> out) {
  std::vector<float> block;
  prepare_selected<int32_t>(samples, preparation.width(), out.data(),
                            [&](int64_t begin, int64_t end, std::span<int32_t> to) {
                              block.resize(to.size());
                              preparation.apply(set, begin, end, std::span<float>(block));
                              std::ranges::transform(block, to.begin(),
                                                     [](float token) { return int32_t(token); });
                            });
}

// Scales floats from anywhere in memory. Returns false if one is not finite.
// Its bits are the same with all vectors, because nothing here can be fused.
RIDGELINE_WIDEST bool scale_floats(const std::byte* __restrict from, size_t count,
                                   const double* __restrict shift, const double* __restrict factor,
                                   float* __restrict out) {
  uint32_t most = 0;  // the largest of the floats' bits without their signs
  for (size_t e = 0; e < count; ++e) {
    float stored;
    uint32_t bits;
    std::memcpy(&stored, from + e * sizeof stored, sizeof stored);
    std::memcpy(&bits, from + e * sizeof bits, sizeof bits);
    most = std::max(most, bits & 0x7fff'ffffu);
    out[e] = float((double(stored) - shift[e]) * factor[e]);
  }
  return most < 0x7f80'0000u;
}

// Prepares samples of one field from a mapped file when they are needed.
class MappedInputs final : public data::InputSource {
 public:
  MappedInputs(const FieldSet& set, std::shared_ptr<const Preparation> preparation,
               std::span<const int64_t> samples)
      : set_(set),
        preparation_(std::move(preparation)),
        field_(set_.field(data::field_of(preparation_->features().front()))),
        rows_(field_.values->map()),
        samples_(samples.begin(), samples.end()),
        dtype_(engine::input_dtype(*preparation_)),
        shape_(preparation_->input_shape()) {
    const auto* number = std::get_if<data::NumberFeature>(&preparation_->features().front());
    const bool plain = number != nullptr && !number->clip && !number->log && !number->boolean &&
                       number->fill.empty() && field_.kind == data::FieldKind::number &&
                       field_.shape == number->shape;
    if (plain) plain_ = number;
  }

  DType dtype() const override { return dtype_; }
  const Shape& sample_shape() const override { return shape_; }

  void gather(std::span<const int32_t> samples, std::span<std::byte> out) const override {
    const size_t each = size_t(shape_.numel()) * size_of(dtype_);
    // Samples are far apart in memory, and prefetching makes reads several times faster.
    constexpr size_t kAhead = 16, kLine = 64, kMostLines = 8;
    const size_t bytes = std::min(field_.row_bytes(), kMostLines * kLine);
    for (size_t i = 0; i < samples.size(); ++i) {
      if (i + kAhead < samples.size()) {
        const auto row = size_t(samples_[size_t(samples[i + kAhead])]);
        const std::byte* const next = rows_.data() + row * field_.row_bytes();
        for (size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(next + at);
      }
      put(samples_[size_t(samples[i])], out.data() + i * each);
    }
    field_.values->check_map();
  }

 private:
  void put(int64_t row, std::byte* out) const {
    const std::byte* const from = rows_.data() + size_t(row) * field_.row_bytes();
    if (dtype_ == DType::uint8) {
      std::memcpy(out, from, field_.row_bytes());
    } else if (plain_ == nullptr || !scale(from, reinterpret_cast<float*>(out))) {
      const auto width = size_t(shape_.numel());
      preparation_->apply(set_, row, row + 1, {reinterpret_cast<float*>(out), width});
    }
  }

  // Computes what NumberFeature::apply does, bit for bit, for a sample of finite numbers. Returns
  // false if a number is not finite; the output is then undefined.
  bool scale(const std::byte* from, float* out) const {
    switch (field_.dtype) {
      case DType::fp32:
        return scale_floats(from, plain_->shift.size(), plain_->shift.data(), plain_->scale.data(),
                            out);
      case DType::fp64:
        return scale<double>(from, out);
      case DType::fp16:
        return scale<Fp16>(from, out);
      case DType::bf16:
        return scale<Bf16>(from, out);
      case DType::int32:
        return scale<int32_t>(from, out);
      case DType::int64:
        return scale<int64_t>(from, out);
      case DType::uint8:
        return scale<uint8_t>(from, out);
    }
    return false;
  }
  template <typename T>
  bool scale(const std::byte* from, float* out) const {
    using Number = std::conditional_t<sizeof(T) == 2, float, T>;
    const size_t count = plain_->shift.size();
    const double *shift = plain_->shift.data(), *factor = plain_->scale.data();
    bool finite = true;
    for (size_t e = 0; e < count; ++e) {
      T stored;
      std::memcpy(&stored, from + e * sizeof(T), sizeof(T));
      const double value = double(Number(stored));
      finite &= std::abs(value) <= std::numeric_limits<double>::max();
      out[e] = float((value - shift[e]) * factor[e]);
    }
    return finite;
  }

  FieldSet set_;  // keeps the file open
  std::shared_ptr<const Preparation> preparation_;
  const Field& field_;
  std::span<const std::byte> rows_;
  std::vector<int64_t> samples_;
  DType dtype_;
  Shape shape_;
  const data::NumberFeature* plain_ = nullptr;  // set if values are only scaled
};

// Keeps the numbers of a table prepared and its categories as codes, and makes the one-hot features
// of samples when they are needed: a column of 10,000 categories takes 4 bytes per sample, not
// 40,000.
class CodedInputs final : public data::InputSource {
 public:
  CodedInputs(const FieldSet& set, std::shared_ptr<const Preparation> preparation,
              std::span<const int64_t> samples)
      : preparation_(std::move(preparation)), shape_(preparation_->input_shape()) {
    for (const data::Feature& feature : preparation_->features()) {
      Column column{.width = size_t(data::width_of(feature)),
                    .category = std::get_if<data::CategoryFeature>(&feature)};
      if (column.width == 0) continue;  // codes that are no features
      const Field& field = set.field(data::field_of(feature));
      if (column.category != nullptr) {
        column.codes.resize(samples.size());
        prepare_selected<int32_t>(samples, 1, column.codes.data(),
                                  [&](int64_t begin, int64_t end, std::span<int32_t> to) {
                                    column.category->apply_codes(field, begin, end, to.data(), 1);
                                  });
      } else {
        column.numbers.resize(samples.size() * column.width);
        const auto width = int64_t(column.width);
        std::vector<double> block;
        prepare_selected<float>(
            samples, width, column.numbers.data(),
            [&](int64_t begin, int64_t end, std::span<float> to) {
              block.resize(to.size());
              std::visit([&](const auto& f) { f.apply(field, begin, end, block.data(), width); },
                         feature);
              std::ranges::transform(block, to.begin(), [](double x) { return float(x); });
            });
      }
      columns_.push_back(std::move(column));
    }
  }

  DType dtype() const override { return DType::fp32; }
  const Shape& sample_shape() const override { return shape_; }

  void gather(std::span<const int32_t> samples, std::span<std::byte> out) const override {
    auto* to = reinterpret_cast<float*>(out.data());
    for (const int32_t sample : samples) {
      for (const Column& column : columns_) {
        column.put(size_t(sample), to);
        to += column.width;
      }
    }
  }

 private:
  struct Column {
    size_t width = 0;
    const data::CategoryFeature* category = nullptr;  // null: numbers
    std::vector<int32_t> codes{};
    std::vector<float> numbers{};

    // Writes what the feature's apply() does.
    void put(size_t sample, float* out) const {
      if (category == nullptr) {
        std::copy_n(numbers.data() + sample * width, width, out);
        return;
      }
      const auto code = size_t(codes[sample]), count = category->categories.size();
      std::fill_n(out, width, 0.0F);
      if (code < count) {
        out[code] = 1;
      } else {
        std::ranges::transform(category->fill, out, [](double x) { return float(x); });
        if (category->missing == data::MissingRule::indicator) out[count] = 1;
      }
    }
  };

  std::shared_ptr<const Preparation> preparation_;
  std::vector<Column> columns_;
  Shape shape_;
};

// Returns a source for samples that are gathered at once.
std::shared_ptr<const data::InputSource> source_of(const FieldSet& set,
                                                   const Preparation& preparation,
                                                   std::span<const int64_t> samples) {
  const std::shared_ptr<const Preparation> borrowed{std::shared_ptr<const void>(), &preparation};
  auto source = mapped_inputs(set, borrowed, samples);
  return source ? source : coded_inputs(set, borrowed, samples);
}

}  // namespace

HostTensor make_inputs(const FieldSet& set, const Preparation& preparation,
                       std::span<const int64_t> samples) {
  HostTensor inputs(input_dtype(preparation),
                    preparation.input_shape().prepend(int64_t(samples.size())));
  if (const auto* image = only_image(preparation)) {
    gather_pixels(set, *image, samples, std::as_writable_bytes(inputs.span<uint8_t>()));
  } else if (preparation.windows()) {
    fill_windows(set, preparation, samples, inputs.span<float>());
  } else if (inputs.view().dtype == DType::int32) {
    make_tokens(set, preparation, samples, inputs.span<int32_t>());
  } else if (const auto source = source_of(set, preparation, samples)) {
    // If samples are far apart, those between them are not prepared.
    std::vector<int32_t> all(samples.size());
    std::iota(all.begin(), all.end(), 0);
    source->gather(all, std::as_writable_bytes(inputs.span<float>()));
  } else {
    prepare_selected<float>(samples, preparation.width(), inputs.span<float>().data(),
                            [&](int64_t begin, int64_t end, std::span<float> out) {
                              preparation.apply(set, begin, end, out);
                            });
  }
  return inputs;
}

HostTensor make_lengths(const FieldSet& set, const Preparation& preparation,
                        std::span<const int64_t> samples) {
  const data::SequenceFeature* sequence = preparation.sequence();
  if (sequence == nullptr) return {};
  HostTensor lengths(DType::int32, {int64_t(samples.size())});
  const Field& field = set.field(sequence->timestep.field);
  auto to = lengths.span<int32_t>();
  for (size_t i = 0; i < samples.size(); ++i) {
    sequence->lengths(field, samples[i], samples[i] + 1, to.subspan(i, 1));
  }
  return lengths;
}

std::shared_ptr<const data::InputSource> mapped_inputs(
    const FieldSet& set, std::shared_ptr<const Preparation> preparation,
    std::span<const int64_t> samples) {
  if (preparation->windows() || preparation->features().size() != 1) return nullptr;
  const data::Feature& feature = preparation->features().front();
  const Field& field = set.field(data::field_of(feature));
  if (std::holds_alternative<data::CategoryFeature>(feature) || preparation->sequence() != nullptr)
    return nullptr;
  // Values in memory may be freed before the set; those of a file live as long as the set.
  if (!field.values->resident().empty() || field.values->map().empty()) return nullptr;
  FieldSet alone(set.name());
  alone.add(field);
  return std::make_shared<MappedInputs>(alone, std::move(preparation), samples);
}

std::shared_ptr<const data::InputSource> coded_inputs(
    const FieldSet& set, std::shared_ptr<const Preparation> preparation,
    std::span<const int64_t> samples) {
  const bool has_categories =
      std::ranges::any_of(preparation->features(), [](const data::Feature& feature) {
        return std::holds_alternative<data::CategoryFeature>(feature);
      });
  if (!has_categories || preparation->windows() || preparation->sequence() != nullptr) {
    return nullptr;
  }
  return std::make_shared<CodedInputs>(set, std::move(preparation), samples);
}

int64_t prepared_samples(const FieldSet& set, const Preparation& preparation) {
  const auto& windows = preparation.windows();
  if (!windows) return set.size();
  if (set.size() < windows->window) {
    throw_error(ErrorKind::data, "{}: has {} but a window takes {}", set.name(),
                counted(set.size(), "timestep"), windows->window);
  }
  return (set.size() - windows->window) / windows->stride + 1;
}

void append_inputs(const FieldSet& set, const Preparation& preparation, int64_t begin, int64_t end,
                   std::vector<uint8_t>& out) {
  std::vector<int64_t> samples(static_cast<size_t>(end - begin));
  std::iota(samples.begin(), samples.end(), 0);
  const int64_t stride = preparation.windows() ? preparation.windows()->stride : 1;
  for (int64_t& sample : samples) sample = (sample + begin) * stride;
  const HostTensor inputs = make_inputs(set, preparation, samples);
  const auto* from = static_cast<const uint8_t*>(inputs.view().data);
  const HostTensor lengths = make_lengths(set, preparation, samples);
  if (lengths.view().data == nullptr) {
    out.insert(out.end(), from, from + inputs.view().bytes());
    return;
  }
  const size_t each = inputs.view().bytes() / samples.size();
  for (const int32_t length : lengths.span<const int32_t>()) {
    const auto bytes = std::bit_cast<std::array<uint8_t, sizeof length>>(length);
    out.insert(out.end(), bytes.begin(), bytes.end());
    out.insert(out.end(), from, from + each);
    from += each;
  }
}

DType input_dtype(const Preparation& preparation) {
  const data::SequenceFeature* sequence = preparation.sequence();
  if (sequence != nullptr && sequence->tokens > 0) return DType::int32;
  return only_image(preparation) != nullptr ? DType::uint8 : DType::fp32;
}

void check_codes(std::span<const uint8_t> samples, int64_t codes, int64_t features,
                 int64_t first_sample, const std::string& name) {
  const auto high = std::ranges::find_if(samples, [&](uint8_t code) { return code >= codes; });
  if (high == samples.end()) return;
  throw_error(
      ErrorKind::data,
      "{}: sample {} holds the code {}, but the first layer knows {} (0 to {}): the samples of "
      "this model are codes",
      name, first_sample + (high - samples.begin()) / features, *high, counted(codes, "code"),
      codes - 1);
}

}  // namespace ridgeline::engine
