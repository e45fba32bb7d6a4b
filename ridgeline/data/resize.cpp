#include "ridgeline/data/resize.h"

#include <algorithm>
#include <vector>

#include "ridgeline/core/host_memory.h"

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

void check_images(const Tensor& images) {
  const int rank = images.shape.rank();
  if (images.dtype == DType::uint8 && (rank == 3 || rank == 4)) return;
  throw_error(ErrorKind::data, "cannot resize {} {}: images are bytes [n, height, width]",
              name(images.dtype), to_string(images.shape));
}

// The share of the input pixels [first, first + weights.size()) that an output pixel covers, in
// units of 1 / to of a pixel; the weights sum to `from`.
struct Cover {
  int64_t first;
  std::vector<int64_t> weights;
};

std::vector<Cover> covers(int64_t from, int64_t to) {
  std::vector<Cover> all;
  for (int64_t i = 0; i < to; ++i) {
    const int64_t begin = i * from, end = begin + from;
    Cover cover{begin / to, {}};
    for (int64_t pixel = cover.first; pixel * to < end; ++pixel) {
      cover.weights.push_back(std::min(end, (pixel + 1) * to) - std::max(begin, pixel * to));
    }
    all.push_back(std::move(cover));
  }
  return all;
}

}  // namespace

HostTensor resize_by_area(const Tensor& images, int64_t height, int64_t width) {
  check_images(images);
  const int rank = images.shape.rank();
  const int64_t h = images.shape[rank - 2], w = images.shape[rank - 1];
  HostTensor resized(DType::uint8, images.shape.with(rank - 2, height).with(rank - 1, width));
  if (images.numel() == 0) return resized;
  const std::vector<Cover> rows = covers(h, height), columns = covers(w, width);
  const int64_t planes = images.numel() / (h * w), area = h * w;
  std::vector<int64_t> sums(static_cast<size_t>(w));
  for (int64_t plane = 0; plane < planes; ++plane) {
    const uint8_t* from = images.as<const uint8_t>() + plane * area;
    uint8_t* to = resized.view().as<uint8_t>() + plane * height * width;
    for (const Cover& row : rows) {
      std::ranges::fill(sums, 0);
      for (size_t r = 0; r < row.weights.size(); ++r) {
        const uint8_t* line = from + (row.first + int64_t(r)) * w;
        for (size_t x = 0; x < sums.size(); ++x) sums[x] += row.weights[r] * line[x];
      }
      for (const Cover& column : columns) {
        int64_t sum = 0;
        for (size_t c = 0; c < column.weights.size(); ++c) {
          sum += column.weights[c] * sums[size_t(column.first) + c];
        }
        *to++ = uint8_t((sum + area / 2) / area);
      }
    }
  }
  return resized;
}

HostTensor resize(const Tensor& images, int64_t height, int64_t width) {
  check_images(images);
  const int rank = images.shape.rank();
  const int64_t h = images.shape[rank - 2], w = images.shape[rank - 1];
  const Shape shape = images.shape.with(rank - 2, height).with(rank - 1, width);
  require_host_memory(size_t(shape.numel()), "use a smaller data.resize or fewer images");
  HostTensor resized(DType::uint8, shape);
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

void resize(SampleSet& set, int64_t height, int64_t width) {
  set.inputs = resize(set.inputs.view(), height, width);
  set.hash = hash_of(set);
}

}  // namespace ridgeline::data
