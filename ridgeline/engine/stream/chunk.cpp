#include "ridgeline/engine/stream/chunk.h"

#include <algorithm>

namespace ridgeline::engine {
namespace {

// These follow the head of a result.
struct Sizes {
  int64_t labels = 0, outputs = 0, text = 0;
  int32_t wide = 0, error_kind = 0;
};

void append(std::vector<uint8_t>& to, const void* data, size_t bytes) {
  const auto* begin = static_cast<const uint8_t*>(data);
  to.insert(to.end(), begin, begin + bytes);
}

}  // namespace

std::vector<uint8_t> ChunkResult::pack(bool wide) const {
  Chunk chunk;
  chunk.set_head({ChunkKind::result, number, first_sample, count});
  std::vector<uint8_t>& out = chunk.buffer();
  const Sizes sizes{int64_t(labels.size()), int64_t(outputs.size()), int64_t(error.size()),
                    int32_t(wide), int32_t(error_kind)};
  append(out, &sizes, sizeof(sizes));
  append(out, labels.data(), labels.size() * sizeof(labels[0]));
  if (wide) {
    append(out, outputs.data(), outputs.size() * sizeof(double));
  } else {
    const std::vector<float> narrow(outputs.begin(), outputs.end());
    append(out, narrow.data(), narrow.size() * sizeof(float));
  }
  append(out, error.data(), error.size());
  return std::move(out);
}

ChunkResult ChunkResult::unpack(const Chunk& message) {
  const ChunkHead head = message.head();
  ChunkResult result;
  result.number = head.number;
  result.first_sample = head.first_sample;
  result.count = head.count;
  std::span<const uint8_t> left = message.body();
  const auto take = [&](void* to, size_t bytes) {
    if (bytes > left.size()) throw_error(ErrorKind::comm, "a result of {} is cut off", head.number);
    if (bytes > 0) std::memcpy(to, left.data(), bytes);
    left = left.subspan(bytes);
  };
  Sizes sizes;
  take(&sizes, sizeof(sizes));
  const auto limited = [&](int64_t stated) {
    return size_t(std::clamp<int64_t>(stated, 0, int64_t(left.size())));
  };
  result.labels.resize(limited(sizes.labels));
  take(result.labels.data(), result.labels.size() * sizeof(int32_t));
  result.outputs.resize(limited(sizes.outputs));
  if (sizes.wide != 0) {
    take(result.outputs.data(), result.outputs.size() * sizeof(double));
  } else {
    std::vector<float> narrow(result.outputs.size());
    take(narrow.data(), narrow.size() * sizeof(float));
    std::ranges::copy(narrow, result.outputs.begin());
  }
  result.error.resize(limited(sizes.text));
  take(result.error.data(), result.error.size());
  result.error_kind = ErrorKind(sizes.error_kind);
  return result;
}

}  // namespace ridgeline::engine
