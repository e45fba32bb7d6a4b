#include "ridgeline/cuda/tile/tile.h"

#include <algorithm>

namespace ridgeline::cuda {
namespace {

// Data-centre GPUs have fp64 tensor cores at the rate of fp32 multiply-adds.
bool has_fast_fp64() {
  int device = 0, major = 0, minor = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  return (major == 8 || major == 9) && minor == 0;
}

}  // namespace

template <>
const TileKernels<double>& tile_kernels(TileMath) {
  return tile_fp64_kernels();
}

template <>
const TileKernels<float>& tile_kernels(TileMath math) {
  switch (math) {
    case TileMath::tf32:
      return tile_tf32_kernels();
    case TileMath::fp32x3:
      return tile_fp32x3_kernels();
    case TileMath::fp32_in_fp64:
      return tile_fp32_in_fp64_kernels();
    default:
      return tile_fp32_kernels();
  }
}

std::vector<TileChoice> tile_choices(TileMath math, TileProduct product, int m, int n, int k) {
  if (math == TileMath::fp64) return tile_fp64_kernels().choices(product, m, n, k);
  std::vector<TileChoice> all = tile_kernels<float>(math).choices(product, m, n, k);
  if (math == TileMath::fp32 && has_fast_fp64()) {
    for (TileChoice& choice : tile_fp32_in_fp64_kernels().choices(product, m, n, k)) {
      all.push_back(std::move(choice));
    }
    std::stable_sort(all.begin(), all.end(), [](const TileChoice& x, const TileChoice& y) {
      return x.estimate_us < y.estimate_us;
    });
  }
  return all;
}

}  // namespace ridgeline::cuda
