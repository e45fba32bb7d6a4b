#include "ridgeline/data/resize.h"

#include <algorithm>
#include <vector>

namespace ridgeline::data {
namespace {

// Output i of an axis is (low_weight * in[low] + high_weight * in[high]) / (2 * to): fractions of
// the position (i + 0.5) * from / to - 0.5 in units of 1 / (2 * to).
struct Tap {
  int64_t low, high, low_weight, high_weight;
};

std::vector<Tap> taps(int64_t from, int64_t to) {
  std::vector<Tap> all;
  for (int64_t i = 0; i < to; ++i) {
    const int64_t position = std::max<int64_t>(0, (2 * i + 1) * from - to);  // times 2 * to
    const int64_t low = std::min(position / (2 * to), from - 1);
    const int64_t high_weight = low == from - 1 ? 0 : position - low * 2 * to;
    all.push_back({low, std::min(low + 1, from - 1), 2 * to - high_weight, high_weight});
  }
  return all;
}

}  // namespace

HostTensor resize(const Tensor& images, int64_t height, int64_t width) {
  const int rank = images.shape.rank();
  if (images.dtype != DType::uint8 || (rank != 3 && rank != 4)) {
    throw_error(ErrorKind::data, "cannot resize {} {}: images are bytes [n, height, width]",
                name(images.dtype), to_string(images.shape));
  }
  const int64_t h = images.shape[rank - 2], w = images.shape[rank - 1];
  HostTensor resized(DType::uint8, images.shape.with(rank - 2, height).with(rank - 1, width));
  if (images.numel() == 0) return resized;
  const std::vector<Tap> rows = taps(h, height), columns = taps(w, width);
  const int64_t planes = images.numel() / (h * w), divisor = 4 * height * width;
  for (int64_t plane = 0; plane < planes; ++plane) {
    const uint8_t* from = images.as<const uint8_t>() + plane * h * w;
    uint8_t* to = resized.view().as<uint8_t>() + plane * height * width;
    for (const Tap& row : rows) {
      const uint8_t *low = from + row.low * w, *high = from + row.high * w;
      for (const Tap& column : columns) {
        const auto along = [&](const uint8_t* line) {
          return line[column.low] * column.low_weight + line[column.high] * column.high_weight;
        };
        const int64_t sum = along(low) * row.low_weight + along(high) * row.high_weight;
        *to++ = uint8_t((sum + divisor / 2) / divisor);
      }
    }
  }
  return resized;
}

void resize(ImageSet& set, int64_t height, int64_t width) {
  set.images = resize(set.images.view(), height, width);
  set.hash = hash_of(set);
}

}  // namespace ridgeline::data
