#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "ridgeline/core/buffer.h"

namespace ridgeline::data {

// Labelled images, or texts as codes, resident in host memory as bytes; scaling to floats is the
// gather's business.
struct ImageSet {
  HostTensor images;  // uint8 [n, sample...], n >= 1
  HostTensor labels;  // int32 [n], or [n, targets] with one a step; each in [0, classes)
  int classes = 0;
  // A text for a language model: batches of this many samples, taken in order, continue one another
  // sample by sample. 0: samples that have nothing to do with one another.
  int64_t streams = 0;
  std::string symbols{};  // of such a text, by code
  int64_t codes = 0;  // of texts to classify: bytes are codes in [0, codes); 0: of anything else
  std::string name;
  uint64_t hash = 0;  // of shapes, images and labels: equal sets, equal hashes. Not cryptographic

  int64_t size() const { return labels.view().shape[0]; }
  int64_t targets() const { return labels.view().numel() / size(); }  // of a sample
  Shape sample_shape() const { return images.view().shape.drop_front(); }
  int64_t features() const { return sample_shape().numel(); }
};

struct DataSet {
  ImageSet train, test;
};

// Computes what ImageSet::hash holds.
uint64_t hash_of(const ImageSet& set);

enum class Part { train, test };

// `classes` 0: one more than the largest label. Throws data when the counts differ, a label lies
// outside the classes, or the files are not what they should be.
ImageSet load_pair(const std::filesystem::path& images, const std::filesystem::path& labels,
                   std::string name, int classes = 0);

// From a folder with the four customary files (train-images-idx3-ubyte and so on, with or without
// .gz, with "-idx" or ".idx").
ImageSet load_folder_part(const std::filesystem::path& folder, Part part, std::string name,
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
