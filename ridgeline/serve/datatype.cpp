#include "ridgeline/serve/datatype.h"

#include <fmt/ranges.h>

#include <array>

namespace ridgeline::serve {
namespace {

struct Entry {
  std::string_view name;
  size_t size;
  bool whole;
};

// The entries stand in the order of the enumerators.
constexpr std::array<Entry, 14> kEntries = {{
    {"BOOL", 1, true},
    {"UINT8", 1, true},
    {"UINT16", 2, true},
    {"UINT32", 4, true},
    {"UINT64", 8, true},
    {"INT8", 1, true},
    {"INT16", 2, true},
    {"INT32", 4, true},
    {"INT64", 8, true},
    {"FP16", 2, false},
    {"BF16", 2, false},
    {"FP32", 4, false},
    {"FP64", 8, false},
    {"BYTES", 0, false},
}};

}  // namespace

std::string_view name(Datatype type) { return kEntries[size_t(type)].name; }

std::optional<Datatype> parse_datatype(std::string_view text) {
  for (size_t i = 0; i < kEntries.size(); ++i) {
    if (kEntries[i].name == text) return Datatype(i);
  }
  return std::nullopt;
}

size_t size_of(Datatype type) { return kEntries[size_t(type)].size; }
bool is_whole(Datatype type) { return kEntries[size_t(type)].whole; }

bool holds(Datatype type, int64_t value) {
  if (type == Datatype::boolean) return value == 0 || value == 1;
  const size_t bits = 8 * size_of(type);
  const bool is_signed = type >= Datatype::int8;
  if (bits == 64) return is_signed || value >= 0;
  const int64_t end = int64_t{1} << (is_signed ? bits - 1 : bits);
  return value >= (is_signed ? -end : 0) && value < end;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace ridgeline::serve
