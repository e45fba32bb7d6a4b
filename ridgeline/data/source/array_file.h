#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ridgeline/data/field_set.h"
#include "ridgeline/data/input_file.h"
#include "ridgeline/data/stored_type.h"

namespace ridgeline::data {

// The layout of an array in a file; the first axis is that of the samples.
struct ArrayLayout {
  StoredType type;
  Shape shape;
  bool fortran = false;  // the first axis varies fastest

  // Throws Error(data) on overflow.
  int64_t bytes(const std::string& file) const;
};

// The array that begins `offset` bytes into a plain file, read when needed: mapped if the file
// stores the numbers in our form, else in windows, with the byte order and the order of the axes
// converted. The caller has compared
// the file's size with the layout. Reading few samples at a time from an array in Fortran order is
// slow, because a sample's elements are far apart.
Field array_in_file(std::string name, std::shared_ptr<const InputFile> file, int64_t offset,
                    const ArrayLayout& layout);

// Reads the next array of a stream (gzip, a compressed entry of an archive) into memory. It
// allocates only as much as the stream really holds, so a false size costs nothing. Throws
// Error(data) if the stream ends early.
Field array_in_stream(std::string name, ByteStream& in, const ArrayLayout& layout);

// Deflate encodes at best 258 bytes in two bits: a compressed file cannot expand by more than this
// factor.
constexpr int64_t kMostDeflateRatio = 1032;

// Throws Error(data) if `bytes` exceeds what `packed` bytes of deflate can hold.
void check_packed_size(const std::string& file, int64_t packed, int64_t bytes);

// Fills `out` from the bytes at `offset`; throws Error(data) if the file has shrunk.
void read_at(const InputFile& file, int64_t offset, std::span<std::byte> out);

}  // namespace ridgeline::data
