#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ridgeline/core/dtype.h"

namespace ridgeline::data {

// The number type that a file stores. We have fewer dtypes: narrow and unsigned integers are
// widened when they are read, so that no value changes.
struct StoredType {
  enum class Kind : uint8_t { boolean, signed_integer, unsigned_integer, real, brain_real };
  Kind kind = Kind::real;
  int width = 4;         // bytes
  bool swapped = false;  // stored in the other byte order

  // The dtype after reading: booleans and uint8 are uint8; int8, int16, uint16 and int32 are int32;
  // uint32, int64 and uint64 are int64.
  DType dtype() const;
  // Whether the stored bytes are the dtype's own and can be used in place.
  bool direct() const;
  std::string name() const;  // "int16, big-endian"

  static StoredType of(DType dtype);  // in the host's byte order
};

// Parses "fp32" or "float32", "int16", "uint8", "bool" and so on, after '>' for big-endian. Throws
// Error(usage).
StoredType parse_stored_type(std::string_view text);

// Converts `count` numbers of `in` to dtype() in `out`, which must not overlap. Throws Error(data),
// naming `file`, for a uint64 above the largest int64.
void convert(const StoredType& type, const std::byte* in, std::byte* out, size_t count,
             const std::string& file);

}  // namespace ridgeline::data
