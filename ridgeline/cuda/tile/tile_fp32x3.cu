#include "ridgeline/cuda/tile/mma_family.cuh"

namespace ridgeline::cuda {

const TileKernels<float>& tile_fp32x3_kernels() {
  return tile::Launchers<tile::Tf32Family<tile::Tf32x3Unit, TileMath::fp32x3, 380, true>>::all();
}

}  // namespace ridgeline::cuda
