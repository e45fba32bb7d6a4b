#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "ridgeline/data/field_set.h"
#include "ridgeline/data/input_file.h"

namespace ridgeline::data {

// A NumPy array (.npy of versions 1 to 3, plain or gzip) of numbers, booleans or strings, in either
// byte order and in C or Fortran order; its first dimension counts the samples. Of a plain file
// only the header is read now, the rest as it is asked for; strings are read at once and become a
// category, a boolean or a text, by the rule of TextColumn. Throws data when the file is not what
// its header says; bytes after the array are refused.
Field read_npy(const std::filesystem::path& path, std::string name);

// The same of the part [begin, begin + bytes) of a plain file. `in` gives these bytes from their
// beginning, and its name is used in messages.
Field npy_in_file(std::string name, std::shared_ptr<const InputFile> file, int64_t begin,
                  int64_t bytes, ByteStream& in);

// The same of a stream, read to its end. `packed` is the size of what the stream unpacks: a header
// that states more than that can hold is refused before anything is allocated.
Field npy_in_stream(std::string name, ByteStream& in, int64_t packed);

}  // namespace ridgeline::data
