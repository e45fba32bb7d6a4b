#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ridgeline/core/buffer.h"
#include "ridgeline/plan/kernel.h"

namespace ridgeline::test {

// A value in one format.
using Instance = std::pair<ValueId, Format>;
// The contents of values in formats that are not plain, byte for byte.
using Formatted = std::map<Instance, std::vector<std::byte>>;

// Device memory between two guards. It starts as NaN in every float type, so that unwritten
// elements show.
class Guarded {
 public:
  Guarded(Runtime& runtime, size_t bytes);

  std::byte* data() const { return buffer_.data() + kGuard; }
  size_t size() const { return bytes_; }
  bool intact() const;

 private:
  static constexpr size_t kGuard = 256;
  Runtime* runtime_;
  size_t bytes_;
  DeviceBuffer buffer_;
};

// The memory of a program's values, each in the requested formats.
class KernelMemory {
 public:
  KernelMemory(Runtime& runtime, const Program& program) : runtime_(runtime), program_(program) {}

  Tensor get(ValueId id, const Format& format, size_t bytes);  // made when first asked for
  Tensor get(const FormatUse& use) { return get(use.value, use.format, use.bytes); }
  Tensor plain(ValueId id);

  std::vector<std::byte> bytes(const FormatUse& use);
  void upload(const FormatUse& use, std::span<const std::byte> bytes);

  // Converts a value from one format to another, both of which have memory, by the first kernel of
  // `table` that can. Returns that kernel's name, or "" if there is none.
  std::string convert(const KernelTable& table, ValueId id, const Format& from, const Format& to);

  std::vector<std::string> overruns() const;  // values written past their ends

 private:
  Runtime& runtime_;
  const Program& program_;
  std::map<Instance, Guarded> buffers_;
};

// The elements that a format has beyond those of the value: those that a conversion of ones does
// not set to one.
std::vector<size_t> padding_of(const FormatUse& use, const Program& program, Runtime& runtime,
                               const KernelTable& table);

// Whether the elements of a type at these indices are all zero.
bool all_zero(std::span<const std::byte> bytes, DType dtype, const std::vector<size_t>& places);
// Sets the elements of a float type at these indices to NaN.
void poison(std::span<std::byte> bytes, DType dtype, const std::vector<size_t>& places);

}  // namespace ridgeline::test
