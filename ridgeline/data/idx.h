#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "ridgeline/core/buffer.h"
#include "ridgeline/core/thread_pool.h"
#include "ridgeline/data/input_file.h"

namespace ridgeline::data {

// An IDX file (plain or gzip): two zero bytes, a type, a rank, the extents as big-endian 32-bit
// words, then the elements, big-endian, row-major. uint8, int32, float and double are read, into
// host byte order; int8 and int16 are refused by name.
// Throws data when the header is not IDX's, or when the file holds fewer or more bytes than it
// declares. Allocates no more than the file's size (gzip: than what it really unpacks to).
HostTensor read_idx(const std::filesystem::path& path);
HostTensor read_idx(InputFile& file);  // from the file's beginning; read nothing from it before

// Reads the samples of an IDX file of bytes, or of a raw file of samples, in bounded memory and
// with the checks of read_idx: errors that can be known at the start are thrown there, the rest at
// the end. A gzip file may have any number of members.
class SampleStream {
 public:
  // `raw_sample` is the shape of a sample if there is no header.
  SampleStream(const std::filesystem::path& path, const Shape& raw_sample, bool idx);

  const Shape& shape() const { return shape_; }  // of one sample
  // The samples in the file. None for a gzip file without a header, whose size is unknown.
  std::optional<int64_t> count() const { return count_; }
  // Appends up to `most` of the next samples and returns how many: fewer only at the end.
  int64_t read(int64_t most, std::vector<uint8_t>& out);
  // From now on reads only the range of samples that `part_of` returns for their number. Throws
  // Error(usage) for a gzip file.
  void restrict(const std::function<Range(int64_t count)>& part_of);

 private:
  InputFile file_;
  ByteSource in_;
  Shape shape_;
  std::optional<int64_t> count_;
  int64_t begin_ = 0, end_ = 0;  // of the samples to read; the end may not be known yet
  int64_t header_bytes_ = 0;
};

// True if the file, unpacked, begins with an IDX header of a type we know.
bool is_idx(const std::filesystem::path& path);

}  // namespace ridgeline::data
