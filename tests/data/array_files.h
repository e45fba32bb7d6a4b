#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/data/field_set.h"

namespace ridgeline::data::testing {

// The bytes of a .npy file with this header literal, padded as NumPy does.
std::string npy(std::string_view literal, std::string_view payload, int version = 1);
// {'descr': DESCR, 'fortran_order': False, 'shape': SHAPE, }
std::string npy_literal(std::string_view descr, std::string_view shape, bool fortran = false);

// `value` in the byte order asked for.
template <typename T>
std::string stored(T value, bool big = false) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return big ? std::string(bytes.rbegin(), bytes.rend()) : bytes;
}
template <typename T>
std::string stored(const std::vector<T>& values, bool big = false) {
  std::string bytes;
  for (const T value : values) bytes += stored(value, big);
  return bytes;
}

// An entry of a zip archive, and which of its fields are to be false.
struct ZipPart {
  std::string name, bytes;
  bool deflated = false;
  int64_t stated_size = -1;  // -1: the true one
  bool wrong_crc = false;
  uint16_t flags = 0, method = 0xffff;  // 0xffff: as `deflated` says
  bool zip64 = false;
};
std::string zip(const std::vector<ZipPart>& parts);

// All values of a field as doubles.
std::vector<double> doubles(const Field& field);
// All values of a field in its own type.
template <typename T>
std::vector<T> values(const Field& field) {
  std::vector<T> all(size_t(field.bytes()) / sizeof(T));
  field.values->read(0, field.rows(), std::as_writable_bytes(std::span(all)));
  return all;
}

}  // namespace ridgeline::data::testing
