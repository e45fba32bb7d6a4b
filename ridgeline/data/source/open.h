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
  // Describe a file of nothing but numbers. Both are given, or none.
  std::optional<StoredType> raw_type{};
  std::optional<Shape> raw_shape{};  // of a sample
  bool raw_if_unknown = false;       // a file that says what it is is read as that
};

// The samples of one purpose.
struct SetPart {
  std::string name;  // train, validation or test; empty where the source does not say
  FieldSet set;
};

// A source that was opened: what it is and what it holds.
struct OpenedSource {
  std::string title;           // "a table of separated values"
  std::vector<SetPart> parts;  // at least one
  bool table = false;          // its fields are columns: the last is the target, if none is named
};

// Opens whatever holds samples, by its content: .npy, .npz, safetensors, IDX, tables, JSON lines, a
// text a line, an image, a folder of images by class, a folder of the four IDX files, or, with
// raw_type and raw_shape, raw numbers. A field of a file that holds one array goes by the file's
// name without its ending. Arrays whose names end in _train and _test (or begin with train_ and
// test_), and folders named train and test, are parts. Throws data with what was found instead.
OpenedSource open_source(const std::filesystem::path& path, const SourceOptions& options = {});

}  // namespace ridgeline::data
