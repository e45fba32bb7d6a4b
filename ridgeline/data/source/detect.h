#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace ridgeline::data {

// What a file is, by its content.
enum class Content {
  empty,
  npy,
  npz,
  torch,  // PyTorch's own files: a zip archive with a pickle in it
  excel,
  zip,
  pickle,
  png,
  jpeg,
  gif,
  bmp,
  webp,
  tiff,
  hdf5,
  parquet,
  pdf,
  safetensors,
  idx,
  table,       // of separated values
  json_lines,  // an object a line
  json,
  text,
  utf16,
  binary,  // none of these
};

struct Detected {
  Content content = Content::binary;
  bool gzip = false;  // the content is that of the unpacked file
};

// Looks at the first bytes of a file, unpacked if it is gzip. Of a text, the name's ending settles
// what its content leaves open: a table of one column, say. Throws data as InputFile does, and on a
// gzip stream that is damaged at its beginning.
Detected detect(const std::filesystem::path& path);

// The same of the first bytes; `size` is that of the file, -1 if it is not known.
Content detect(std::span<const uint8_t> first, int64_t size);

std::string_view title(Content content);  // "a NumPy array (.npy)"
// What to do about a file of this kind; empty where it can be read.
std::string_view remedy(Content content);

// Refuses a file of a kind that is known by its first bytes (arrays, archives, images, documents),
// or a table by its name's ending too, where `wanted` is wanted. Throws data, with how to read it.
void refuse_known(const std::filesystem::path& path, std::string_view wanted);

// Throws data: FILE is this, but `wanted` is wanted; and the remedy.
[[noreturn]] void refuse_content(const std::filesystem::path& path, const Detected& found,
                                 std::string_view wanted);

}  // namespace ridgeline::data
