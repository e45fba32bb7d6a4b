#include "ridgeline/data/field_values.h"

#include <cstring>
#include <utility>

namespace ridgeline::data {

void MemoryValues::read(int64_t begin, int64_t end, std::span<std::byte> out) const {
  if (begin == end || row_bytes_ == 0) return;
  const auto part = bytes_.subspan(size_t(begin) * row_bytes_, size_t(end - begin) * row_bytes_);
  std::memcpy(out.data(), part.data(), part.size());
}

std::shared_ptr<const FieldValues> owned_values(Buffer bytes, size_t row_bytes) {
  auto owner = std::make_shared<const Buffer>(std::move(bytes));
  const std::span<const std::byte> all(owner->data(), owner->size());
  return std::make_shared<MemoryValues>(all, row_bytes, std::move(owner));
}

}  // namespace ridgeline::data
