#include "ridgeline/cuda/tile/launch.cuh"

namespace ridgeline::cuda {
namespace {

using tile::FmaMath, tile::Order, tile::Shape, tile::Variant;

struct Fp32Family {
  using T = float;
  static constexpr TileMath kMath = TileMath::fp32;
  static constexpr int kVariants = 3;
  static constexpr double kFlops = 0.27e6;  // H200: 34 TFLOP/s in total
  static constexpr double kShare[] = {1, 1, 1};

  template <Order kA, Order kB, typename F>
  static void with(int variant, F f) {
    using Tall = Shape<128, 64, 16, 3, 3>;
    using Small = Shape<64, 64, 16, 3, 4>;
    using Third = Shape<96, 64, 16, 3, 3>;
    switch (variant) {
      case 0:
        return f(static_cast<Variant<Tall, FmaMath<Tall, 8, 8, kA, kB, 2>>*>(nullptr));
      case 1:
        return f(static_cast<Variant<Small, FmaMath<Small, 8, 8, kA, kB, 4>>*>(nullptr));
      case 2:
        if constexpr (kA == Order::k) {  // its rows are not read in groups of four
          return f(static_cast<Variant<Third, FmaMath<Third, 6, 8, kA, kB, 4>>*>(nullptr));
        }
    }
  }
};

}  // namespace

const TileKernels<float>& tile_fp32_kernels() { return tile::Launchers<Fp32Family>::all(); }

}  // namespace ridgeline::cuda
