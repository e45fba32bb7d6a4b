#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ridgeline/data/field_set.h"
#include "ridgeline/data/image_options.h"
#include "ridgeline/data/source/image.h"

namespace ridgeline::data {

// The images of a folder and what their headers say.
struct ImageFolder {
  std::filesystem::path path;
  std::vector<std::string> classes;          // names of its folders, in byte order; may be none
  std::vector<std::filesystem::path> files;  // by class, then in byte order of the names
  std::vector<int32_t> labels;               // of the files; empty where there are no classes
  std::vector<ImageInfo> infos;              // of the files

  bool same_size() const;
  bool all_grey() const;
};

// Finds the images of FOLDER/CLASS/NAME, or of FOLDER/NAME where it has no folders. Names that
// begin with a dot, and Thumbs.db and desktop.ini, are passed over; every other file of a class
// must be a PNG or JPEG image by its content, so that none is left out unseen. Files beside the
// class folders that are no images are passed over. Throws data with the file.
ImageFolder scan_image_folder(const std::filesystem::path& folder);

// The set of the fields "image", uint8 [height, width] or [3, height, width], and "label", a
// category (where there are classes). Images are decoded as they are asked for, by several threads.
// Throws data when sizes differ and none is given.
FieldSet read_image_folder(const ImageFolder& folder, const ImageOptions& options = {});

}  // namespace ridgeline::data
