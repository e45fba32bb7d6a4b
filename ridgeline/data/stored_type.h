#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ridgeline/core/dtype.h"

namespace ridgeline::data {

// How a file stores one number. Our dtypes are fewer: narrow and unsigned integers are widened when
// they are read, so that no value changes.
struct StoredType {
  enum class Kind : uint8_t { boolean, signed_integer, unsigned_integer, real, brain_real };
  Kind kind = Kind::real;
  int width = 4;         // bytes
  bool swapped = false;  // stored in the other byte order than the host's

  // What it becomes: booleans and uint8 are uint8; int8, int16, uint16 and int32 are int32; uint32,
  // int64 and uint64 are int64.
  DType dtype() const;
  // True if the stored bytes are the dtype's own and can be used as they lie.
  bool direct() const;
  std::string name() const;  // "int16, big-endian"

  static StoredType of(DType dtype);  // in the host's byte order
};

// "fp32" or "float32", "int16", "uint8", "bool" and so on, after '>' for big-endian. Throws usage.
StoredType parse_stored_type(std::string_view text);

// `count` numbers of `in` as dtype() in `out`, which may not overlap. Throws data, naming `file`,
// for a uint64 above the largest int64.
void convert(const StoredType& type, const std::byte* in, std::byte* out, size_t count,
             const std::string& file);

}  // namespace ridgeline::data
