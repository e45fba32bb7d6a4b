#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "ridgeline/core/buffer.h"

namespace ridgeline::data {

// The values of a field: in our own memory, in the caller's memory, or in a file that is read
// when needed. They are returned in the field's dtype and the host's byte order, dense and
// row-major, however they are stored. A row is a sample, or a timestep if samples have
// lengths.
class FieldValues {
 public:
  virtual ~FieldValues() = default;

  // Copies the rows [begin, end) to `out`, which has exactly their size. Thread-safe. Throws
  // Error(data) if the file has changed since it was opened.
  virtual void read(int64_t begin, int64_t end, std::span<std::byte> out) const = 0;

  // All rows, if they are in memory; empty if they must be read.
  virtual std::span<const std::byte> resident() const { return {}; }

  // All rows, if they are in memory or in a mapped file; empty if they must be read. After reading
  // from a map, call check_map(), which throws Error(data) if the file has shrunk.
  virtual std::span<const std::byte> map() const { return resident(); }
  virtual void check_map() const {}
};

// Values in memory. `owner` keeps them alive; without one, the caller does.
class MemoryValues final : public FieldValues {
 public:
  MemoryValues(std::span<const std::byte> bytes, size_t row_bytes,
               std::shared_ptr<const void> owner = nullptr)
      : bytes_(bytes), row_bytes_(row_bytes), owner_(std::move(owner)) {}

  void read(int64_t begin, int64_t end, std::span<std::byte> out) const override;
  std::span<const std::byte> resident() const override { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
  size_t row_bytes_;
  std::shared_ptr<const void> owner_;
};

std::shared_ptr<const FieldValues> owned_values(Buffer bytes, size_t row_bytes);

}  // namespace ridgeline::data
