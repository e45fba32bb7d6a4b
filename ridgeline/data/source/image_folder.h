#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ridgeline/data/field_set.h"
#include "ridgeline/data/image_options.h"
#include "ridgeline/data/source/image.h"

namespace ridgeline::data {

// The images of a folder and the facts in their headers.
struct ImageFolder {
  std::filesystem::path path;
  std::vector<std::string> classes;          // names of its subfolders, in byte order; may be empty
  std::vector<std::filesystem::path> files;  // by class, then in byte order of the names
  std::vector<int32_t> labels;               // of the files; empty if there are no classes
  std::vector<ImageInfo> infos;              // of the files

  bool same_size() const;
  bool all_grey() const;
};

// Finds the images of FOLDER/CLASS/NAME, or of FOLDER/NAME if it has no subfolders. Names that
// begin with a dot, and Thumbs.db and desktop.ini, are skipped; every other file of a class must be
// a PNG or JPEG image by its content, so that none is left out silently. Files beside the class
// folders that are not images are skipped. Throws Error(data) with the file.
ImageFolder scan_image_folder(const std::filesystem::path& folder);

// Returns the options with a size, if none is given and choose_size is set: the mean size if images
// differ in size, and one with sides of at most kChosenSide if it is above kLargeSide.
constexpr int64_t kChosenSide = 64, kLargeSide = 128;
ImageOptions chosen_size(const ImageFolder& folder, ImageOptions options);

// Returns the fields "image", uint8 [height, width] or [3, height, width], and "label", a category
// (if there are classes). Images are decoded when needed, by several threads. Throws Error(data) if
// sizes differ and none is given.
FieldSet read_image_folder(const ImageFolder& folder, const ImageOptions& options = {});

}  // namespace ridgeline::data
