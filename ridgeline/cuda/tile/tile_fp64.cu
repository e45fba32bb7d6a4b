#include "ridgeline/cuda/tile/mma_family.cuh"

namespace ridgeline::cuda {

const TileKernels<double>& tile_fp64_kernels() {
  return tile::Launchers<tile::Fp64Family<tile::Fp64Unit, TileMath::fp64, 320>>::all();
}

}  // namespace ridgeline::cuda
