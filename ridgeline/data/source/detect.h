#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace ridgeline::data {

// The type of a file, by its content.
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
  arrow,
  sqlite,
  packed,  // other than by gzip and zip
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

// Detects from the first bytes of a file, decompressed if it is gzip. For a text, the file
// extension decides what its content leaves open: a table of one column, for example. Throws
// Error(data) like InputFile, and for a gzip stream that is damaged at its beginning.
Detected detect(const std::filesystem::path& path);

// Detects from the first bytes alone; `size` is that of the file, -1 if unknown.
Content detect(std::span<const uint8_t> first, int64_t size);

std::string_view title(Content content);  // "a NumPy array (.npy)"
// Returns what to do about a file of this kind; empty if it can be read.
std::string_view remedy(Content content);

// Refuses a file whose kind is known by its first bytes (arrays, archives, images, documents), or a
// table by its extension too, if `wanted` is wanted. Throws Error(data), with how to read it.
void refuse_known(const std::filesystem::path& path, std::string_view wanted);

// Throws Error(data): FILE is of this kind, but `wanted` is wanted; and the remedy.
[[noreturn]] void refuse_content(const std::filesystem::path& path, const Detected& found,
                                 std::string_view wanted);

}  // namespace ridgeline::data
