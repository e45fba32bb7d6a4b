#include "ridgeline/data/scaling.h"

#include <algorithm>
#include <cmath>

#include "ridgeline/core/error.h"

namespace ridgeline::data {
namespace {

Scaling standard_scaling(std::span<const uint8_t> bytes) {
  constexpr size_t kBlock = 1 << 14;  // 2^14 * 255^2 < 2^32: the inner sums stay in 32 bits
  uint64_t sum = 0, squares = 0;
  for (size_t at = 0; at < bytes.size(); at += kBlock) {
    uint32_t block_sum = 0, block_squares = 0;
    for (const uint8_t byte : bytes.subspan(at, std::min(kBlock, bytes.size() - at))) {
      block_sum += byte;
      block_squares += uint32_t{byte} * byte;
    }
    sum += block_sum;
    squares += block_squares;
  }
  // variance = spread / n^2, with no cancellation
  using Wide = unsigned __int128;
  const Wide spread = Wide{bytes.size()} * squares - Wide{sum} * sum;
  if (spread == 0) {
    throw_error(ErrorKind::data,
                "data.scale = \"standard\": all pixels of the training set are equal, so there is "
                "no deviation to scale by; use raw or unit");
  }
  const double count = double(bytes.size());
  const double deviation = std::sqrt(double(spread)) / count;
  const double mean = double(sum) / count;
  return {float(1.0 / deviation), float(-mean / deviation)};
}

}  // namespace

Scaling make_scaling(ScaleKind kind, std::span<const uint8_t> bytes) {
  switch (kind) {
    case ScaleKind::raw:
      return {};
    case ScaleKind::unit:
      return {1.0f / 255.0f, 0.0f};
    case ScaleKind::standard:
      return standard_scaling(bytes);
  }
  return {};
}

}  // namespace ridgeline::data
