#include "ridgeline/cuda/tile/mma_family.cuh"

namespace ridgeline::cuda {

const TileKernels<float>& tile_fp32_in_fp64_kernels() {
  return tile::Launchers<
      tile::Fp64Family<tile::Fp32InFp64Unit, TileMath::fp32_in_fp64, 360>>::all();
}

}  // namespace ridgeline::cuda
