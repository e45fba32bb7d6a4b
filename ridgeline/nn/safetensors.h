#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ridgeline/core/error.h"
#include "ridgeline/core/tensor.h"

namespace ridgeline::nn {

// The safetensors format: 8 bytes of header length, a JSON header, the tensors' bytes. It has
// names, types, shapes and offsets, and nothing executable. F64, F32, BF16, F16, I64, I32 and U8
// are read.

using Metadata = std::map<std::string, std::string>;

// A tensor in a file, or one to be written.
struct TensorEntry {
  std::string name;
  DType dtype = DType::fp32;
  Shape shape;
  std::span<const std::byte> data;  // may be unaligned in a TensorFile: copy it out
};

TensorEntry entry(std::string name, const Tensor& host);

// The checksums of a file of ours do not match its contents.
class DamagedFile : public Error {
 public:
  explicit DamagedFile(const std::string& message) : Error(ErrorKind::model, message) {}
};

// A checked file in memory: every tensor's bytes lie in it, and together they fill it. A file
// written by to_safetensors is bit for bit what was written.
class TensorFile {
 public:
  TensorFile(TensorFile&&) = default;
  TensorFile& operator=(TensorFile&&) = default;

  static TensorFile read(const std::filesystem::path& path);

  // Throws an Error(model) that begins with `origin`, or a DamagedFile, which is one.
  static TensorFile parse(std::vector<std::byte> bytes, const std::string& origin);

  const std::string& origin() const { return origin_; }
  const Metadata& metadata() const { return metadata_; }  // without the checksums
  // Whether damage would have been found. False if an older version or another program wrote it.
  bool has_checksums() const { return has_checksums_; }
  const std::vector<TensorEntry>& tensors() const { return tensors_; }  // by name
  const TensorEntry* find(const std::string& name) const;               // nullptr if missing

 private:
  TensorFile() = default;

  std::string origin_;
  std::vector<std::byte> bytes_;  // never resized: the entries point into it
  Metadata metadata_;
  std::vector<TensorEntry> tensors_;
  bool has_checksums_ = false;
};

// Returns the bytes of a file, with checksums in its metadata (safetensors_checksums.h). Wider
// types come first, so that each tensor is aligned to its own element.
std::vector<std::byte> to_safetensors(std::span<const TensorEntry> tensors,
                                      const Metadata& metadata);

}  // namespace ridgeline::nn
