#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "ridgeline/core/descriptor.h"
#include "ridgeline/data/input_file.h"

namespace ridgeline::data {

// The bytes of a plain file, mapped for reading, so that nothing is copied before it is wanted. A
// mapped file that another program cuts short would kill the process with SIGBUS. Here a handler
// puts zeros in the place of what is gone, and check() throws: whoever has read from bytes() calls
// check() before using what was read.
class MappedFile {
 public:
  // Null where the system refuses the mapping (no address space, too many mappings): the file must
  // be read then.
  static std::shared_ptr<const MappedFile> map(const InputFile& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  // Throws data when the file has shrunk under the mapping.
  void check() const;

 private:
  MappedFile(Descriptor file, std::span<const std::byte> bytes, std::string name, size_t slot)
      : file_(std::move(file)), bytes_(bytes), name_(std::move(name)), slot_(slot) {}

  Descriptor file_;
  std::span<const std::byte> bytes_;
  std::string name_;
  size_t slot_;  // of the table that the handler looks at
};

}  // namespace ridgeline::data
