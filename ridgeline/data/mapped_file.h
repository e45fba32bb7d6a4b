#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "ridgeline/core/descriptor.h"
#include "ridgeline/data/input_file.h"

namespace ridgeline::data {

// The bytes of a regular file, mapped for reading, so that nothing is copied before it is needed.
// If another program truncates a mapped file, an access would kill the process with SIGBUS. Here a
// handler maps zeros instead, and check() throws: after reading bytes(), call check() before using
// the values.
class MappedFile {
 public:
  // Returns null if the system refuses the mapping (no address space, too many mappings): the file
  // must then be read.
  static std::shared_ptr<const MappedFile> map(const InputFile& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  // Throws Error(data) if the file has shrunk under the mapping.
  void check() const;

 private:
  MappedFile(Descriptor file, std::span<const std::byte> bytes, std::string name, size_t slot)
      : file_(std::move(file)), bytes_(bytes), name_(std::move(name)), slot_(slot) {}

  Descriptor file_;
  std::span<const std::byte> bytes_;
  std::string name_;
  size_t slot_;  // index in the handler's table
};

}  // namespace ridgeline::data
