#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ridgeline/data/input_file.h"

namespace ridgeline::data {

struct ZipEntry {
  std::string name;
  bool deflated = false;  // else stored
  uint32_t crc = 0;
  int64_t packed = 0, unpacked = 0;  // bytes
  int64_t begin = 0;                 // of its data in the file
};

// The entries of a zip archive, including ZIP64. The sizes are checked against the file: entries
// lie in it and do not overlap, so that together they cannot expand to more than deflate can make
// of the file's own size. Encrypted entries, other methods and multi-part archives are refused, and
// so is an archive above kMostBombFree bytes that claims to expand to more than kMostRatio times
// its size. Throws Error(data).
class ZipFile {
 public:
  explicit ZipFile(std::shared_ptr<InputFile> file);

  const std::vector<ZipEntry>& entries() const { return entries_; }  // in the archive's order
  const std::shared_ptr<InputFile>& file() const { return file_; }

  // Returns the entry's decompressed bytes. A read past the end checks size and CRC. Throws
  // Error(data) with the names of the file and of the entry.
  std::unique_ptr<ByteStream> open(const ZipEntry& entry) const;

  static constexpr int64_t kMostRatio = 64;
  static constexpr int64_t kMostBombFree = int64_t{1} << 30;

 private:
  void read_directory();
  void locate_data(ZipEntry& entry, int64_t header);
  void check_layout() const;

  std::shared_ptr<InputFile> file_;
  std::vector<ZipEntry> entries_;
};

}  // namespace ridgeline::data
