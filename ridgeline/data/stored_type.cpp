#include "ridgeline/data/stored_type.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

namespace ridgeline::data {
namespace {

template <typename T>
T load_value(const std::byte* in, bool swapped) {
  std::byte bytes[sizeof(T)];
  std::memcpy(bytes, in, sizeof(T));
  if (swapped) std::reverse(bytes, bytes + sizeof(T));
  return std::bit_cast<T>(bytes);
}

template <typename From, typename To>
void widen(const StoredType& type, const std::byte* in, std::byte* out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const To value = To(load_value<From>(in + i * sizeof(From), type.swapped));
    std::memcpy(out + i * sizeof(To), &value, sizeof(To));
  }
}

template <typename T>
void swap_bytes(const std::byte* in, std::byte* out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const T value = load_value<T>(in + i * sizeof(T), true);
    std::memcpy(out + i * sizeof(T), &value, sizeof(T));
  }
}

void check_int64(const StoredType& type, const std::byte* in, size_t count,
                 const std::string& file) {
  for (size_t i = 0; i < count; ++i) {
    const auto value = load_value<uint64_t>(in + i * sizeof(uint64_t), type.swapped);
    if (value > uint64_t(std::numeric_limits<int64_t>::max())) {
      throw_error(ErrorKind::data,
                  "{}: holds {}, which no 64-bit signed integer can; save it as float64", file,
                  value);
    }
  }
}

}  // namespace

DType StoredType::dtype() const {
  switch (kind) {
    case Kind::boolean:
      return DType::uint8;
    case Kind::brain_real:
      return DType::bf16;
    case Kind::real:
      return width == 2 ? DType::fp16 : width == 4 ? DType::fp32 : DType::fp64;
    case Kind::signed_integer:
      return width == 8 ? DType::int64 : DType::int32;
    case Kind::unsigned_integer:
      return width == 1 ? DType::uint8 : width == 2 ? DType::int32 : DType::int64;
  }
  return DType::fp64;
}

bool StoredType::direct() const {
  if (kind == Kind::boolean || (swapped && width > 1)) return false;
  if (kind == Kind::signed_integer) return width >= 4;
  if (kind == Kind::unsigned_integer) return width == 1;
  return true;
}

std::string StoredType::name() const {
  if (kind == Kind::boolean) return "bool";
  const bool real = kind == Kind::real || kind == Kind::brain_real;
  std::string_view base = kind == Kind::signed_integer ? "int" : "uint";
  if (real) base = kind == Kind::real ? "float" : "bfloat";
  const bool big = swapped == (std::endian::native == std::endian::little);
  return fmt::format("{}{}{}", base, 8 * width, big && width > 1 ? ", big-endian" : "");
}

StoredType StoredType::of(DType dtype) {
  const int width = int(size_of(dtype));
  if (dtype == DType::uint8) return {Kind::unsigned_integer, width, false};
  if (dtype == DType::bf16) return {Kind::brain_real, width, false};
  return {is_float(dtype) ? Kind::real : Kind::signed_integer, width, false};
}

StoredType parse_stored_type(std::string_view text) {
  using Kind = StoredType::Kind;
  std::string_view word = text;
  const bool big = word.starts_with('>');
  if (big || word.starts_with('<')) word.remove_prefix(1);
  const bool swapped = big == (std::endian::native == std::endian::little);
  if (word == "bool") return {Kind::boolean, 1, false};
  if (word == "bf16" || word == "bfloat16") return {Kind::brain_real, 2, swapped};
  constexpr std::pair<std::string_view, Kind> kKinds[] = {{"fp", Kind::real},
                                                          {"float", Kind::real},
                                                          {"int", Kind::signed_integer},
                                                          {"uint", Kind::unsigned_integer}};
  constexpr std::pair<std::string_view, int> kWidths[] = {
      {"8", 1}, {"16", 2}, {"32", 4}, {"64", 8}};
  for (const auto& [base, kind] : kKinds) {
    for (const auto& [bits, width] : kWidths) {
      const bool known = kind != Kind::real || width > 1;
      if (known && word == fmt::format("{}{}", base, bits))
        return {kind, width, swapped && width > 1};
    }
  }
  throw_error(ErrorKind::usage,
              "'{}' is not a type of numbers; use fp16, fp32, fp64, bf16, int8 to int64, uint8 to "
              "uint64 or bool",
              text);
}

void convert(const StoredType& type, const std::byte* in, std::byte* out, size_t count,
             const std::string& file) {
  using Kind = StoredType::Kind;
  if (type.direct()) {
    if (count > 0) std::memcpy(out, in, count * size_t(type.width));
    return;
  }
  if (type.kind == Kind::boolean) {
    for (size_t i = 0; i < count; ++i) out[i] = std::byte{in[i] != std::byte{0}};
  } else if (type.kind == Kind::signed_integer && type.width < 4) {
    type.width == 1 ? widen<int8_t, int32_t>(type, in, out, count)
                    : widen<int16_t, int32_t>(type, in, out, count);
  } else if (type.kind == Kind::unsigned_integer && type.width == 2) {
    widen<uint16_t, int32_t>(type, in, out, count);
  } else if (type.kind == Kind::unsigned_integer && type.width == 4) {
    widen<uint32_t, int64_t>(type, in, out, count);
  } else if (type.kind == Kind::unsigned_integer) {
    check_int64(type, in, count, file);
    widen<uint64_t, int64_t>(type, in, out, count);
  } else if (type.width == 2) {
    swap_bytes<uint16_t>(in, out, count);
  } else {
    type.width == 4 ? swap_bytes<uint32_t>(in, out, count) : swap_bytes<uint64_t>(in, out, count);
  }
}

}  // namespace ridgeline::data
