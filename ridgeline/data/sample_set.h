#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ridgeline/core/buffer.h"

namespace ridgeline::data {

// Inputs that are computed when needed from samples that stay in place, for example in a mapped
// file.
class InputSource {
 public:
  virtual ~InputSource() = default;
  virtual DType dtype() const = 0;
  virtual const Shape& sample_shape() const = 0;
  // Writes the inputs of the samples, one after another. Thread-safe. Throws Error(data) for a
  // sample that cannot be prepared, and if the file has changed.
  virtual void gather(std::span<const int32_t> samples, std::span<std::byte> out) const = 0;
};

// Samples with their targets, resident in host memory or computed when needed. Inputs are bytes
// (images, or texts as codes), which the gather scales to floats, or floats that are already
// prepared. Targets are classes, or values: numbers of a regression, or 0 and 1 for each of several
// labels.
struct SampleSet {
  HostTensor inputs;  // uint8 or fp32 [n, sample...], n >= 1; empty if there is a source
  std::shared_ptr<const InputSource> source{};  // for training samples only
  // int32 [n]: the timesteps of each sample, whose inputs are [most timesteps, ...] with zeros
  // after them; empty: all samples have the same number.
  HostTensor lengths{};
  // fp32 [n]: how much each sample of a training part counts, 1 on average; empty: all alike.
  HostTensor weights{};
  HostTensor targets;  // int32 [n], or [n, timesteps], each in [0, classes); or fp32 [n, outputs]
  int classes = 0;     // 0 if the targets are values
  // For the text of a language model: batches of this many samples, taken in order, continue one
  // another sample by sample. 0: samples are independent.
  int64_t streams = 0;
  std::string symbols{};  // of such a text, by code
  int64_t codes = 0;      // for texts to classify: bytes are codes in [0, codes); else 0
  std::string name;
  uint64_t hash = 0;  // of shapes, inputs and targets; not cryptographic

  int64_t size() const { return targets.view().shape[0]; }
  bool has_lengths() const { return lengths.view().data != nullptr; }
  bool has_weights() const { return weights.view().data != nullptr; }
  bool has_values() const { return is_float(targets.view().dtype); }  // not classes
  // The targets of a sample: one class, or one per timestep. The values of a sample are one target.
  int64_t targets_per_sample() const { return has_values() ? 1 : targets.view().numel() / size(); }
  // The number of a model's outputs per target: one per class, or one per value.
  int64_t outputs() const { return has_values() ? targets.view().numel() / size() : classes; }
  DType input_dtype() const { return source ? source->dtype() : inputs.view().dtype; }
  Shape sample_shape() const {
    return source ? source->sample_shape() : inputs.view().shape.drop_front();
  }
  int64_t features() const { return sample_shape().numel(); }
  size_t input_bytes() const { return size_t(features()) * size_of(input_dtype()); }  // per sample
};

class Preparation;

struct DataSet {
  SampleSet train, test;  // test: empty if there is no test part
  std::optional<SampleSet> validation{};
  bool has_test() const { return test.targets.view().data != nullptr; }
  // The preparation that made these samples from a user's own data; null for other sets.
  std::shared_ptr<const Preparation> preparation{};
  int64_t without_target = 0;  // samples of that data that were left out because they have none
};

// Computes SampleSet::hash. Of inputs from a source, 4096 samples at even distances are
// hashed.
uint64_t hash_of(const SampleSet& set);

enum class Part { train, test };

// `classes` 0: one more than the largest label. Throws Error(data) if the counts differ, a label is
// not a class, or the files are invalid.
SampleSet load_pair(const std::filesystem::path& images, const std::filesystem::path& labels,
                    std::string name, int classes = 0);

// Loads from a folder with the four usual files (train-images-idx3-ubyte and so on, with or without
// .gz, with "-idx" or ".idx").
SampleSet load_folder_part(const std::filesystem::path& folder, Part part, std::string name,
                           int classes = 0);
DataSet load_folder(const std::filesystem::path& folder, std::string name, int classes = 0);

// The canonical names, without .gz.
std::string_view images_file(Part part);
std::string_view labels_file(Part part);

// Returns the file in `folder` with the canonical name `name` (with or without ".gz") in any of its
// spellings.
std::optional<std::filesystem::path> find_spelling(const std::filesystem::path& folder,
                                                   std::string_view name);

}  // namespace ridgeline::data
