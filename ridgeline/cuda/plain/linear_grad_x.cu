#include "ridgeline/cuda/plain/gemm.cuh"

namespace ridgeline::cuda {
namespace {

template <typename T>
struct StoreProduct {
  T* d;
  int columns;

  __device__ void operator()(int row, int col, Accumulated<T> sum) const {
    d[int64_t(row) * columns + col] = T(sum);
  }
};

}  // namespace

template <typename T>
cudaError_t launch_linear_grad_x(const LinearGradXArgs<T>& args, const GemmTiling& tiling,
                                 void* workspace, cudaStream_t stream) {
  const StoreProduct<T> epilogue{args.dx, args.in};
  return launch_gemm<T, true, false, false>(args.dy, args.out, args.w, args.in, args.n, args.in,
                                            args.out, epilogue, tiling, workspace, stream);
}

#define RIDGELINE_LAUNCH_GRAD_X(T)                                                               \
  template cudaError_t launch_linear_grad_x(const LinearGradXArgs<T>&, const GemmTiling&, void*, \
                                            cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(RIDGELINE_LAUNCH_GRAD_X)

}  // namespace ridgeline::cuda
