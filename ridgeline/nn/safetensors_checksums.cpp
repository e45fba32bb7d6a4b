#include "ridgeline/nn/safetensors_checksums.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridgeline/core/checksum.h"
#include "ridgeline/core/text_format.h"

namespace ridgeline::nn {
namespace {

constexpr std::string_view kKey = "ridgeline.crc32";
constexpr std::string_view kNoChecksum = "00000000";

std::string key_of(const TensorEntry& tensor) { return fmt::format("{}.{}", kKey, tensor.name); }

// Returns where the digits of the header's own checksum begin, or npos. Inside a JSON string the
// quotes would be escaped, so only the key itself is found.
size_t find_digits(std::string_view head) {
  const std::string before = fmt::format("\"{}\":\"", kKey);
  const size_t at = head.find(before);
  if (at == head.npos || head.size() - at < before.size() + kNoChecksum.size()) return head.npos;
  return at + before.size();
}

std::string header_checksum(std::span<const std::byte> head, size_t digits_at) {
  uint32_t crc = crc32_of(head.first(digits_at));
  crc = crc32_of(std::as_bytes(std::span(kNoChecksum)), crc);
  return crc32_text(crc32_of(head.subspan(digits_at + kNoChecksum.size()), crc));
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

void add_checksums(Metadata& metadata, std::span<const TensorEntry> tensors) {
  remove_checksums(metadata);
  metadata[std::string(kKey)] = kNoChecksum;
  for (const TensorEntry& tensor : tensors) {
    metadata[key_of(tensor)] = crc32_text(crc32_of(tensor.data));
  }
}

void write_header_checksum(std::span<std::byte> head) {
  const size_t at = find_digits(as_text(head));
  const std::string sum = header_checksum(head, at);
  std::ranges::copy(std::as_bytes(std::span(sum)), head.begin() + ptrdiff_t(at));
}

void check_header(std::span<const std::byte> head, const std::string& origin) {
  const std::string_view text = as_text(head);
  const size_t at = find_digits(text);
  if (at == text.npos) {
    throw DamagedFile(fmt::format("{}: the header is damaged: its checksum is gone", origin));
  }
  const std::string now = header_checksum(head, at);
  const std::string_view then = text.substr(at, kNoChecksum.size());
  if (now != then) {
    throw DamagedFile(fmt::format(
        "{}: the header is damaged: its checksum is '{}' and was {} when it was written", origin,
        now, quote(then)));
  }
}

void check_tensor_bytes(std::span<const TensorEntry> tensors, const Metadata& metadata,
                        const std::string& origin) {
  for (const TensorEntry& tensor : tensors) {
    const auto found = metadata.find(key_of(tensor));
    if (found == metadata.end()) {
      throw DamagedFile(
          fmt::format("{}: tensor {} has no checksum in the metadata", origin, quote(tensor.name)));
    }
    const std::string now = crc32_text(crc32_of(tensor.data));
    if (now != found->second) {
      throw DamagedFile(fmt::format(
          "{}: tensor {} is damaged: its checksum is '{}' and was {} when it was written", origin,
          quote(tensor.name), now, quote(found->second)));
    }
  }
}

void remove_checksums(Metadata& metadata) {
  std::erase_if(metadata, [](const auto& entry) {
    return entry.first == kKey || entry.first.starts_with(fmt::format("{}.", kKey));
  });
}

}  // namespace ridgeline::nn
