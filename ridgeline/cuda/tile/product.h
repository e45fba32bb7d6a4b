#pragma once

#include <memory>

#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/tile/tile.h"

// Code that the tile kernels share.
namespace ridgeline::cuda {

inline TileMath tile_math(Precision precision, DType dtype) {
  if (dtype == DType::fp64) return TileMath::fp64;
  return precision == Precision::tf32     ? TileMath::tf32
         : precision == Precision::fp32x3 ? TileMath::fp32x3
                                          : TileMath::fp32;
}

inline constexpr Traits kTiles{.precisions = kFp64AndFp32, .least_arch = 80};

// Why the tile kernels cannot take values of this type.
inline std::string refuse_tile_type(DType dtype) {
  return dtype == DType::fp64 || dtype == DType::fp32 ? "" : "takes fp64 and fp32 only";
}

// The choice with this number, or the last if there are fewer.
inline TileChoice tile_choice(TileMath math, TileProduct product, int64_t m, int64_t n, int64_t k,
                              int proposal) {
  std::vector<TileChoice> list = tile_choices(math, product, int(m), int(n), int(k));
  if (list.empty()) {
    throw_error(ErrorKind::device, "no tile kernel for a product of {} x {} over {}", m, n, k);
  }
  return std::move(list[std::min(size_t(proposal), list.size() - 1)]);
}

inline TileChoice tile_choice(TileMath math, const Linear& op, int proposal) {
  return tile_choice(math, TileProduct::linear, op.n(), op.out(), op.in(), proposal);
}
inline TileChoice tile_choice(TileMath math, const LinearGradX& op, int proposal) {
  return tile_choice(math, TileProduct::grad_x, op.n(), op.in(), op.out(), proposal);
}
inline TileChoice tile_choice(TileMath math, const LinearGradW& op, int proposal) {
  return tile_choice(math, TileProduct::grad_w, op.out(), op.in(), op.n(), proposal);
}

// Counters that are zero between launches and live as long as a step.
class TileCounters {
 public:
  TileCounters(Runtime& runtime, int count)
      : buffer_(std::make_shared<DeviceBuffer>(runtime, size_t(std::max(1, count)) * 4)) {}
  unsigned* get() const { return reinterpret_cast<unsigned*>(buffer_->data()); }

 private:
  std::shared_ptr<DeviceBuffer> buffer_;
};

}  // namespace ridgeline::cuda
