#include "ridgeline/data/sample_set.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "ridgeline/core/text.h"
#include "ridgeline/data/idx.h"

namespace ridgeline::data {
namespace {

// Mixes eight bytes per round: multiply and fold, about 5 GB/s, so that hashing costs less than
// decompression.
uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 32);
}

uint64_t hash_tensor(uint64_t hash, const Tensor& tensor) {
  for (const int64_t extent : tensor.shape.dims()) hash = mix(hash, uint64_t(extent));
  const auto* bytes = static_cast<const std::byte*>(tensor.data);
  const size_t count = tensor.bytes();
  for (size_t at = 0; at < count; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min(size_t{8}, count - at));
    hash = mix(hash, word);
  }
  return hash;
}

HostTensor read_images(const std::filesystem::path& path) {
  HostTensor images = read_idx(path);
  const Tensor& view = images.view();
  if (view.dtype != DType::uint8 || view.shape.rank() < 2) {
    throw_error(ErrorKind::data, "{}: holds {} {}; images are uint8 [count, rows, columns]",
                path.string(), name(view.dtype), to_string(view.shape));
  }
  if (view.numel() == 0) {
    throw_error(ErrorKind::data, "{}: holds no images: shape {}", path.string(),
                to_string(view.shape));
  }
  if (view.shape[0] > std::numeric_limits<int32_t>::max()) {
    throw_error(ErrorKind::data, "{}: {} images; at most {} are supported", path.string(),
                view.shape[0], std::numeric_limits<int32_t>::max());
  }
  return images;
}

HostTensor read_labels(const std::filesystem::path& path) {
  HostTensor stored = read_idx(path);
  const Tensor& view = stored.view();
  const bool known = view.dtype == DType::uint8 || view.dtype == DType::int32;
  if (!known || view.shape.rank() != 1) {
    throw_error(ErrorKind::data, "{}: holds {} {}; labels are uint8 or int32 [count]",
                path.string(), name(view.dtype), to_string(view.shape));
  }
  if (view.dtype == DType::int32) return stored;
  HostTensor labels(DType::int32, view.shape);
  std::ranges::copy(stored.span<uint8_t>(), labels.span<int32_t>().begin());
  return labels;
}

// Returns the number of classes after checking all labels against it.
int check_labels(std::span<const int32_t> labels, int classes, const std::string& file) {
  constexpr int kMostClasses = 1 << 20;  // a larger label means a damaged file
  const int limit = classes > 0 ? classes : kMostClasses;
  int32_t largest = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0 || labels[i] >= limit) {
      throw_error(ErrorKind::data, "{}: sample {}: label {} is outside the {} classes (0 to {})",
                  file, i, labels[i], limit, limit - 1);
    }
    largest = std::max(largest, labels[i]);
  }
  return classes > 0 ? classes : largest + 1;
}

std::filesystem::path require_file(const std::filesystem::path& folder, std::string_view name) {
  if (auto path = find_spelling(folder, name)) return *std::move(path);
  throw_error(ErrorKind::data, "{}: holds no file {} (nor {}.gz); give a folder with the IDX files",
              folder.string(), name, name);
}

}  // namespace

std::string_view images_file(Part part) {
  return part == Part::train ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte";
}

std::string_view labels_file(Part part) {
  return part == Part::train ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte";
}

std::optional<std::filesystem::path> find_spelling(const std::filesystem::path& folder,
                                                   std::string_view name) {
  std::string plain(name);
  if (plain.ends_with(".gz")) plain.resize(plain.size() - 3);
  std::string dotted = plain;
  if (const size_t dash = dotted.find("-idx"); dash != std::string::npos) dotted[dash] = '.';
  // Plain files come before compressed ones, because they read faster.
  for (const std::string& spelling : {plain, dotted, plain + ".gz", dotted + ".gz"}) {
    std::error_code ignored;
    if (std::filesystem::exists(folder / spelling, ignored)) return folder / spelling;
  }
  return std::nullopt;
}

namespace {

uint64_t hash_of_inputs_and_targets(const SampleSet& set) {
  if (set.source) {
    constexpr int64_t kLookedAt = 4096;
    const int64_t count = std::min(kLookedAt, set.size());
    std::vector<int32_t> samples;
    for (int64_t i = 0; i < count; ++i) samples.push_back(int32_t(i * set.size() / count));
    const HostTensor some(set.input_dtype(), set.sample_shape().prepend(count));
    set.source->gather(samples, {static_cast<std::byte*>(some.view().data), some.view().bytes()});
    return hash_tensor(hash_tensor(uint64_t(set.classes), some.view()), set.targets.view());
  }
  const uint64_t hash =
      hash_tensor(hash_tensor(uint64_t(set.classes), set.inputs.view()), set.targets.view());
  return set.has_lengths() ? hash_tensor(hash, set.lengths.view()) : hash;
}

}  // namespace

uint64_t hash_of(const SampleSet& set) {
  const uint64_t hash = hash_of_inputs_and_targets(set);
  return set.has_weights() ? hash_tensor(hash, set.weights.view()) : hash;
}

SampleSet load_pair(const std::filesystem::path& images, const std::filesystem::path& labels,
                    std::string name, int classes) {
  SampleSet set;
  set.inputs = read_images(images);
  set.targets = read_labels(labels);
  if (set.inputs.view().shape[0] != set.size()) {
    throw_error(ErrorKind::data, "{} holds {}, but {} holds {}; they are not of the same set",
                images.string(), counted(set.inputs.view().shape[0], "image"), labels.string(),
                counted(set.size(), "label"));
  }
  set.classes = check_labels(set.targets.span<int32_t>(), classes, labels.string());
  set.name = std::move(name);
  set.hash = hash_of(set);
  return set;
}

SampleSet load_folder_part(const std::filesystem::path& folder, Part part, std::string name,
                           int classes) {
  return load_pair(require_file(folder, images_file(part)), require_file(folder, labels_file(part)),
                   std::move(name), classes);
}

DataSet load_folder(const std::filesystem::path& folder, std::string name, int classes) {
  DataSet set;
  set.train = load_folder_part(folder, Part::train, name, classes);
  set.test = load_folder_part(folder, Part::test, name, set.train.classes);
  if (set.train.sample_shape() != set.test.sample_shape()) {
    throw_error(ErrorKind::data, "{}: training images are {}, but test images are {}",
                folder.string(), to_string(set.train.sample_shape()),
                to_string(set.test.sample_shape()));
  }
  return set;
}

}  // namespace ridgeline::data
