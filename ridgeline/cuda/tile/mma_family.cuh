#pragma once

#include "ridgeline/cuda/tile/launch.cuh"

namespace ridgeline::cuda::tile {

// For fp64 products, which are slow: eight warps, one block per SM. Tiles of 128 x 128 and, if it
// divides the work better, 96 x 128; 64 x 64 for small products.
template <typename Unit, TileMath kTileMath, int kRate>
struct Fp64Family {
  using T = typename Unit::T;
  static constexpr TileMath kMath = kTileMath;
  static constexpr int kVariants = 3;
  static constexpr double kFlops = 1e3 * kRate;
  // Few barriers, with 24 to 32 products between them.
  static constexpr int kDepth = 256 / int(sizeof(T));
  static constexpr double kShare[] = {1, 1, 1};

  template <Order kA, Order kB, typename F>
  static void with(int variant, F f) {
    using Large = Shape<128, 128, kDepth, 3, 1>;
    using Third = Shape<96, 128, kDepth, 3, 1>;
    using Small = Shape<64, 64, kDepth, 3, 2>;
    switch (variant) {
      case 0:
        return f(static_cast<Variant<Large, MmaMath<Large, 2, 4, Unit, kA, kB>>*>(nullptr));
      case 1:
        return f(static_cast<Variant<Small, MmaMath<Small, 2, 2, Unit, kA, kB>>*>(nullptr));
      case 2:
        if constexpr (kA == Order::k) {
          return f(static_cast<Variant<Third, MmaMath<Third, 2, 4, Unit, kA, kB>>*>(nullptr));
        }
    }
  }
};

// For tf32 products, which are fast: warps of 64 x 64 and two blocks per SM, so that each factor
// that is read and rounded serves many products. kSplit: the small parts of the factors need
// registers too, so warps are 64 x 32.
template <typename Unit, TileMath kTileMath, int kRate, bool kSplit>
struct Tf32Family {
  using T = float;
  static constexpr TileMath kMath = kTileMath;
  static constexpr int kVariants = 3;
  static constexpr double kFlops = 1e3 * kRate;
  // Warps of 32 x 32 read more per product: 43 us where the estimate said 34, on an H200 for dw of
  // 784-512.
  static constexpr double kShare[] = {1, 0.7, 1};

  template <Order kA, Order kB, typename F>
  static void with(int variant, F f) {
    using Large = std::conditional_t<kSplit, Shape<128, 128, 64, 3, 1>, Shape<128, 128, 32, 3, 2>>;
    using Third = Shape<96, 128, 32, 4, 1>;
    using Small = Shape<64, 64, 32, 3, 3>;
    constexpr int kWarpsN = kSplit ? 4 : 2;
    switch (variant) {
      case 0:
        return f(static_cast<Variant<Large, MmaMath<Large, 2, kWarpsN, Unit, kA, kB>>*>(nullptr));
      case 1:
        return f(static_cast<Variant<Small, MmaMath<Small, 2, 2, Unit, kA, kB>>*>(nullptr));
      case 2:
        if constexpr (kA == Order::k) {
          return f(static_cast<Variant<Third, MmaMath<Third, 2, 4, Unit, kA, kB>>*>(nullptr));
        }
    }
  }
};

}  // namespace ridgeline::cuda::tile
