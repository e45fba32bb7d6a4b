#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ridgeline/data/prepare/preparation.h"
#include "ridgeline/data/sample_set.h"

namespace ridgeline::engine {

// The type of the inputs that a model with this preparation takes: bytes of pixels, int32 of
// tokens, else fp32.
DType input_dtype(const data::Preparation& preparation);

// The number of samples that a model sees in a set: one per sample, or one per window of timesteps.
// Ignores targets.
int64_t prepared_samples(const data::FieldSet& set, const data::Preparation& preparation);

// Returns the inputs of these samples, which must ascend; they are the windows' first timesteps if
// the preparation makes windows.
HostTensor make_inputs(const data::FieldSet& set, const data::Preparation& preparation,
                       std::span<const int64_t> samples);

// Returns the number of timesteps of these samples, [samples] int32; empty if they are not
// sequences.
HostTensor make_lengths(const data::FieldSet& set, const data::Preparation& preparation,
                        std::span<const int64_t> samples);

// Prepares inputs when they are needed, from a field in a mapped file; null if the inputs need more
// than one field, or windows, or the file cannot be mapped.
std::shared_ptr<const data::InputSource> mapped_inputs(
    const data::FieldSet& set, std::shared_ptr<const data::Preparation> preparation,
    std::span<const int64_t> samples);

// Prepares the samples of a table but for its categories, whose one-hot features are made when they
// are needed; null if there are none, or windows or sequences.
std::shared_ptr<const data::InputSource> coded_inputs(
    const data::FieldSet& set, std::shared_ptr<const data::Preparation> preparation,
    std::span<const int64_t> samples);

// Appends the inputs of the samples [begin, end) in the model's input type. Each sequence is
// preceded by its number of timesteps, an int32.
void append_inputs(const data::FieldSet& set, const data::Preparation& preparation, int64_t begin,
                   int64_t end, std::vector<uint8_t>& out);

// Checks that samples hold only codes that the model's first layer knows, because kernels use them
// as unchecked indices. Throws Error(data), with the sample counted from `first_sample` and the
// name.
void check_codes(std::span<const uint8_t> samples, int64_t codes, int64_t features,
                 int64_t first_sample, const std::string& name);

constexpr int64_t kPreparedBlock = 4096;  // most samples prepared at a time
constexpr int64_t kPreparedNumbers = int64_t{1} << 22;

// Calls apply(begin, end, span) for ranges of a set that contain the samples, and copies the
// `width` numbers of each sample to `out` in order. Samples must ascend.
template <typename T, typename F>
void prepare_selected(std::span<const int64_t> samples, int64_t width, T* out, F&& apply) {
  std::vector<T> block;
  const int64_t most = std::clamp<int64_t>(kPreparedNumbers / width, 1, kPreparedBlock);
  for (size_t i = 0; i < samples.size();) {
    size_t last = i;
    const int64_t begin = samples[i];
    while (last < samples.size() && samples[last] < begin + most) ++last;
    const int64_t end = samples[last - 1] + 1;
    block.resize(size_t((end - begin) * width));
    apply(begin, end, std::span<T>(block));
    for (; i < last; ++i) {
      std::copy_n(block.data() + (samples[i] - begin) * width, width, out);
      out += width;
    }
  }
}

}  // namespace ridgeline::engine
