#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace ridgeline::data {

// A regular file open for reading, never mapped: a file that shrinks gives an Error, not a SIGBUS.
// Throws data when the file is missing, unreadable, a folder or no regular file.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& name() const { return name_; }
  int64_t size() const { return size_; }  // when it was opened

  // The next bytes; fewer than asked for only at the end. Throws data when the file ends before the
  // size it had when opened, and io when the disk fails.
  size_t read(std::span<std::byte> out);
  // The bytes at `offset`; does not move the position.
  size_t peek(std::span<std::byte> out, int64_t offset = 0) const;

 private:
  std::string name_;
  int fd_ = -1;
  int64_t size_ = 0;
  int64_t position_ = 0;
};

// The bytes of a file, unpacked when the file begins with gzip's magic (whatever its name).
class ByteSource {
 public:
  explicit ByteSource(InputFile& file);
  ~ByteSource();

  bool compressed() const { return inflater_ != nullptr; }
  InputFile& file() { return file_; }

  // As InputFile::read. Asking for bytes past the end of a gzip stream checks its CRC. Throws data
  // on a truncated or damaged stream and on bytes after it.
  size_t read(std::span<std::byte> out);

 private:
  struct Inflater;
  size_t inflate_some(std::span<std::byte> out);

  InputFile& file_;
  std::unique_ptr<Inflater> inflater_;
};

}  // namespace ridgeline::data
