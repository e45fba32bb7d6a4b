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

// Inputs that are made when they are asked for, of samples that stay where they are, such as in a
// mapped file.
class InputSource {
 public:
  virtual ~InputSource() = default;
  virtual DType dtype() const = 0;
  virtual const Shape& sample_shape() const = 0;
  // Writes the inputs of the samples, one after another. Several threads may ask at once. Throws
  // data for a sample that cannot be prepared, and when the file is no longer what it was.
  virtual void gather(std::span<const int32_t> samples, std::span<std::byte> out) const = 0;
};

// Samples with what a model learns to say of them, resident in host memory or made as they are
// asked for. Inputs are bytes
// (images, or texts as codes), which the gather scales to floats, or floats that are prepared
// already. Targets are classes, or values: numbers to come near to, or 0 and 1 for each of several
// labels.
struct SampleSet {
  HostTensor inputs;  // uint8 or fp32 [n, sample...], n >= 1; empty where there is a source
  std::shared_ptr<const InputSource> source{};  // of training samples alone
  // int32 [n]: the timesteps of each sample, whose inputs are [most timesteps, ...] with zeros
  // behind them; empty: all samples have as many.
  HostTensor lengths{};
  HostTensor targets;  // int32 [n], or [n, timesteps], each in [0, classes); or fp32 [n, outputs]
  int classes = 0;     // 0 if the targets are values
  // A text for a language model: batches of this many samples, taken in order, continue one another
  // sample by sample. 0: samples that have nothing to do with one another.
  int64_t streams = 0;
  std::string symbols{};  // of such a text, by code
  int64_t codes = 0;  // of texts to classify: bytes are codes in [0, codes); 0: of anything else
  std::string name;
  uint64_t hash = 0;  // of shapes, inputs and targets: equal sets, equal hashes. Not cryptographic

  int64_t size() const { return targets.view().shape[0]; }
  bool has_lengths() const { return lengths.view().data != nullptr; }
  bool has_values() const { return is_float(targets.view().dtype); }  // as targets, not classes
  // The targets of a sample: one class, or one a timestep. The values of a sample are one target.
  int64_t targets_per_sample() const { return has_values() ? 1 : targets.view().numel() / size(); }
  // What a model must give for each target: a number for each class, or for each value.
  int64_t outputs() const { return has_values() ? targets.view().numel() / size() : classes; }
  DType input_dtype() const { return source ? source->dtype() : inputs.view().dtype; }
  Shape sample_shape() const {
    return source ? source->sample_shape() : inputs.view().shape.drop_front();
  }
  int64_t features() const { return sample_shape().numel(); }
  size_t input_bytes() const { return size_t(features()) * size_of(input_dtype()); }  // a sample
};

class Preparation;

struct DataSet {
  SampleSet train, test;  // test: empty when there is nothing to test on
  std::optional<SampleSet> validation{};
  bool has_test() const { return test.targets.view().data != nullptr; }
  // How fields of a person's own data became these samples; null for other sets.
  std::shared_ptr<const Preparation> preparation{};
};

// Computes what SampleSet::hash holds. Of inputs that a source makes, some are looked at: 4096
// samples at even distances.
uint64_t hash_of(const SampleSet& set);

enum class Part { train, test };

// `classes` 0: one more than the largest label. Throws data when the counts differ, a label lies
// outside the classes, or the files are not what they should be.
SampleSet load_pair(const std::filesystem::path& images, const std::filesystem::path& labels,
                    std::string name, int classes = 0);

// From a folder with the four customary files (train-images-idx3-ubyte and so on, with or without
// .gz, with "-idx" or ".idx").
SampleSet load_folder_part(const std::filesystem::path& folder, Part part, std::string name,
                           int classes = 0);
DataSet load_folder(const std::filesystem::path& folder, std::string name, int classes = 0);

// The canonical names, without .gz.
std::string_view images_file(Part part);
std::string_view labels_file(Part part);

// The file in `folder` that goes by the canonical name `name` (".gz" in it does not matter), in any
// of its spellings.
std::optional<std::filesystem::path> find_spelling(const std::filesystem::path& folder,
                                                   std::string_view name);

}  // namespace ridgeline::data
