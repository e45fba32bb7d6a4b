#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "ridgeline/core/descriptor.h"

namespace ridgeline::data {

// A regular file open for reading; a file that shrinks throws an Error.
// Throws Error(data) if the file is missing, unreadable, a folder or not regular.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);

  const std::string& name() const { return name_; }
  int64_t size() const { return size_; }  // when it was opened

  // Reads the next bytes; fewer than requested only at the end. Throws Error(data) if the file ends
  // before the size it had when opened, and Error(io) if the disk fails.
  size_t read(std::span<std::byte> out);
  void seek(int64_t position) { position_ = position; }
  int64_t position() const { return position_; }
  // Reads the bytes at `offset` without moving the position.
  size_t peek(std::span<std::byte> out, int64_t offset = 0) const;
  int descriptor() const { return file_.get(); }

 private:
  std::string name_;
  Descriptor file_;
  int64_t size_ = 0;
  int64_t position_ = 0;
};

// A stream of bytes from any source.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  virtual size_t read(std::span<std::byte> out) = 0;  // fewer than asked for only at the end
  virtual const std::string& name() const = 0;        // for messages
};

// The bytes of a file, decompressed if the file begins with gzip's magic (whatever its name).
class ByteSource final : public ByteStream {
 public:
  explicit ByteSource(InputFile& file);
  ~ByteSource() override;

  bool compressed() const { return inflater_ != nullptr; }
  InputFile& file() { return file_; }
  const std::string& name() const override { return file_.name(); }

  // As InputFile::read. A read past the end of a gzip stream checks its CRC. Throws Error(data) for
  // a truncated or damaged stream and for bytes after it.
  size_t read(std::span<std::byte> out) override;

 private:
  struct Inflater;
  size_t inflate_some(std::span<std::byte> out);

  InputFile& file_;
  std::unique_ptr<Inflater> inflater_;
};

// Returns a file's bytes in a stream that owns the file.
std::unique_ptr<ByteStream> open_bytes(const std::filesystem::path& path);

// The part [begin, end) of a plain file.
class FilePart final : public ByteStream {
 public:
  FilePart(InputFile& file, int64_t begin, int64_t end);
  size_t read(std::span<std::byte> out) override;
  const std::string& name() const override { return file_.name(); }

 private:
  InputFile& file_;
  int64_t end_;
};

// Bytes in memory that outlive it; `name` is that of the file they came from.
class MemoryStream final : public ByteStream {
 public:
  MemoryStream(std::span<const std::byte> bytes, std::string name)
      : bytes_(bytes), name_(std::move(name)) {}
  size_t read(std::span<std::byte> out) override;
  const std::string& name() const override { return name_; }

 private:
  std::span<const std::byte> bytes_;
  std::string name_;
};

}  // namespace ridgeline::data
