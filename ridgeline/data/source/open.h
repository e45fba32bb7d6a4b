#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ridgeline/data/field_set.h"
#include "ridgeline/data/image_options.h"
#include "ridgeline/data/stored_type.h"
#include "ridgeline/data/table_options.h"

namespace ridgeline::data {

struct SourceOptions {
  TableOptions table{};
  ImageOptions images{};
  // Both describe a raw file of numbers. Either both are given, or neither.
  std::optional<StoredType> raw_type{};
  std::optional<Shape> raw_shape{};  // of a sample
  bool raw_if_unknown = false;       // a file of a known type is read as such
};

// The samples of one purpose.
struct SetPart {
  std::string name;  // train, validation or test; empty if the source does not say
  FieldSet set;
};

// An opened source: its kind and its contents.
struct OpenedSource {
  std::string title;           // "a table of separated values"
  std::vector<SetPart> parts;  // at least one
  bool table = false;          // its fields are columns: the last is the default target
  ImageOptions images{};       // with the size that was chosen, if any
};

// Opens any file or folder of samples, by its content: .npy, .npz, safetensors, IDX, tables, JSON
// lines, text lines, an image, a folder of images by class, a folder of the four IDX files, or,
// with raw_type and raw_shape, raw numbers. The field of a file with one array has the file's name
// without its extension. Arrays whose names end in _train and _test (or begin with train_ and
// test_), and folders named train and test, are parts. Throws Error(data) with what was found
// instead.
OpenedSource open_source(const std::filesystem::path& path, const SourceOptions& options = {});

}  // namespace ridgeline::data
