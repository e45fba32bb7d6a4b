#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "ridgeline/data/field_set.h"
#include "ridgeline/data/input_file.h"

namespace ridgeline::data {

// Reads a NumPy array (.npy of versions 1 to 3, plain or gzip) of numbers, booleans or strings, in
// either byte order and in C or Fortran order; its first dimension counts the samples. Of a plain
// file only the header is read now, the rest when needed; strings are read at once and become a
// category, a boolean or a text, by the rule of TextColumn. Throws Error(data) if the file does not
// match its header; bytes after the array are refused.
Field read_npy(const std::filesystem::path& path, std::string name);

// Reads from the part [begin, begin + bytes) of a plain file. `in` gives these bytes from their
// beginning, and its name is used in messages.
Field npy_in_file(std::string name, std::shared_ptr<const InputFile> file, int64_t begin,
                  int64_t bytes, ByteStream& in);

// Reads from a stream, to its end. `packed` is the compressed size: a header that states more than
// that can hold is refused before anything is allocated.
Field npy_in_stream(std::string name, ByteStream& in, int64_t packed);

}  // namespace ridgeline::data
