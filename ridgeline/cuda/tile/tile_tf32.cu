#include "ridgeline/cuda/tile/mma_family.cuh"

namespace ridgeline::cuda {

const TileKernels<float>& tile_tf32_kernels() {
  return tile::Launchers<tile::Tf32Family<tile::Tf32Unit, TileMath::tf32, 720, false>>::all();
}

}  // namespace ridgeline::cuda
