#pragma once

#include <filesystem>

#include "ridgeline/core/buffer.h"
#include "ridgeline/data/input_file.h"

namespace ridgeline::data {

// An IDX file (plain or gzip): two zero bytes, a type, a rank, the extents as big-endian 32-bit
// words, then the elements, big-endian, row-major. uint8, int32, float and double are read, into
// host byte order; int8 and int16 are refused by name.
// Throws data when the header is not IDX's, or when the file holds fewer or more bytes than it
// declares. Allocates no more than the file's size (gzip: than what it really unpacks to).
HostTensor read_idx(const std::filesystem::path& path);
HostTensor read_idx(InputFile& file);  // from the file's beginning; read nothing from it before

// True if the file, unpacked, begins with an IDX header of a type we know.
bool is_idx(const std::filesystem::path& path);

// A file of nothing but items of uint8, each of `item` elements: uint8 [n, item...].
HostTensor read_raw(const std::filesystem::path& path, const Shape& item);

}  // namespace ridgeline::data
