#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ridgeline/data/input_file.h"
#include "ridgeline/data/source/array_file.h"

namespace ridgeline::data {

// The header of a .npy file (versions 1 to 3): a magic, a length and a Python literal,
//   {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }
struct NpyHeader {
  ArrayLayout layout;
  // Strings of a fixed width: 'S5' is 5 bytes, 'U5' is 5 code points of 4 bytes. The layout's type
  // then only gives the byte order.
  enum class Strings : uint8_t { none, bytes, code_points };
  Strings strings = Strings::none;
  int64_t string_width = 0;  // bytes of one
  int64_t header_bytes = 0;

  int64_t payload_bytes(const std::string& file) const;
};

constexpr std::string_view kNpyMagic = "\x93NUMPY";

// Reads the header from the beginning of `in`. Throws Error(data) for anything but arrays of
// numbers and strings; objects are refused because they are pickled, and a pickle runs code when it
// is read.
NpyHeader read_npy_header(ByteStream& in);

// Parses only the literal; `file` is for messages.
NpyHeader parse_npy_literal(std::string_view literal, const std::string& file);

}  // namespace ridgeline::data
