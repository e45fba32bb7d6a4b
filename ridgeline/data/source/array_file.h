#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ridgeline/data/field_set.h"
#include "ridgeline/data/input_file.h"
#include "ridgeline/data/stored_type.h"

namespace ridgeline::data {

// How an array lies in a file; the first axis is that of the samples.
struct ArrayLayout {
  StoredType type;
  Shape shape;
  bool fortran = false;  // the first axis varies fastest

  // Throws data on overflow.
  int64_t bytes(const std::string& file) const;
};

// The array that begins `offset` bytes into a plain file, read as it is asked for: mapped where the
// file holds the numbers as we do, else in windows, the byte order and the order of the axes put
// right. The caller has compared
// the file's size with the layout. Reading few samples at a time from an array in Fortran order is
// slow, because a sample's elements lie far apart.
Field array_in_file(std::string name, std::shared_ptr<const InputFile> file, int64_t offset,
                    const ArrayLayout& layout);

// The array that comes next in a stream (gzip, a packed entry of an archive), read into memory.
// What is allocated follows what the stream really holds, so that a false size costs nothing.
// Throws data when the stream ends early.
Field array_in_stream(std::string name, ByteStream& in, const ArrayLayout& layout);

// Deflate codes at best 258 bytes in two bits: a packed file cannot unpack to more than this times
// its size.
constexpr int64_t kMostDeflateRatio = 1032;

// Throws data when `bytes` are more than `packed` bytes of deflate can hold.
void check_packed_size(const std::string& file, int64_t packed, int64_t bytes);

// All of `out` from the bytes at `offset`; throws data when the file has shrunk.
void read_at(const InputFile& file, int64_t offset, std::span<std::byte> out);

}  // namespace ridgeline::data
