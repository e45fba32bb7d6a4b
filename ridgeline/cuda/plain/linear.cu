#include "ridgeline/cuda/plain/activation.cuh"
#include "ridgeline/cuda/plain/gemm.cuh"

namespace ridgeline::cuda {
namespace {

// y = f(sum + b[col])
template <typename T>
struct BiasActivation {
  T* y;
  const T* bias;
  const float* acc_bias;
  int columns;
  ActivationFn activation;

  __device__ void operator()(int row, int col, Accumulated<T> sum) const {
    if (bias != nullptr) sum += Accumulated<T>(bias[col]);
    if (acc_bias != nullptr) sum += Accumulated<T>(acc_bias[col]);
    y[int64_t(row) * columns + col] = T(activation_value(activation, sum));
  }
};

}  // namespace

template <typename T>
cudaError_t launch_linear(const LinearArgs<T>& args, const GemmTiling& tiling, void* workspace,
                          cudaStream_t stream) {
  const BiasActivation<T> epilogue{args.y, args.b, args.acc_b, args.out, args.activation};
  return launch_gemm<T, true, true, false>(args.x, args.in, args.w, args.in, args.n, args.out,
                                           args.in, epilogue, tiling, workspace, stream);
}

#define RIDGELINE_LAUNCH_LINEAR(T) \
  template cudaError_t launch_linear(const LinearArgs<T>&, const GemmTiling&, void*, cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(RIDGELINE_LAUNCH_LINEAR)

GemmTiling gemm_tiling(int64_t m, int64_t n, int64_t k, size_t width, int sms) {
  GemmTiling tiling;
  const int64_t tiles = ((m + kGemmTile - 1) / kGemmTile) * ((n + kGemmTile - 1) / kGemmTile);
  // Two blocks per SM hide the latency of the loads; a part of k shorter than 128 is not worth the
  // second pass.
  const int64_t wanted = std::min<int64_t>(2 * sms / std::max<int64_t>(1, tiles), k / 128);
  tiling.splits = int(std::clamp<int64_t>(wanted, 1, 64));
  if (tiling.splits > 1) tiling.workspace = size_t(tiling.splits) * size_t(m * n + m) * width;
  return tiling;
}

}  // namespace ridgeline::cuda
