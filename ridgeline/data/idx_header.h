#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "ridgeline/core/shape.h"
#include "ridgeline/data/input_file.h"
#include "ridgeline/data/stored_type.h"

namespace ridgeline::data {

// The header of an IDX file: two zero bytes, a type, a rank, the extents as big-endian 32-bit
// words.
struct IdxHeader {
  StoredType type;  // uint8, int8, int16, int32, float or double, big-endian
  Shape shape;
  int64_t header_bytes = 0, payload_bytes = 0;
};

// Throws Error(data) if it is not a header, is truncated, or states more than 64 bits can count.
IdxHeader read_idx_header(ByteStream& in);

// Returns the type if these are the first bytes of an IDX file.
std::optional<StoredType> idx_type(std::span<const uint8_t> first);

}  // namespace ridgeline::data
