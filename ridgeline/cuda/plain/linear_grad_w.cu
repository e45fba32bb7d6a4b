#include "ridgeline/cuda/plain/gemm.cuh"
#include "ridgeline/cuda/plain/sgd.cuh"

namespace ridgeline::cuda {
namespace {

// The gradient of one weight, or of one bias: stored, or applied where it is made.
template <typename T>
struct StoreOrUpdate {
  T *dw, *db;
  T *w, *w_momentum, *b, *b_momentum;
  SgdSettings sgd;
  int columns;

  __device__ void operator()(int row, int col, Accumulated<T> sum) const {
    put(dw, w, w_momentum, int64_t(row) * columns + col, sum);
  }
  __device__ void row_sum(int row, Accumulated<T> sum) const { put(db, b, b_momentum, row, sum); }

 private:
  __device__ void put(T* gradient, T* weight, T* momentum, int64_t i, Accumulated<T> sum) const {
    if (weight == nullptr) {
      gradient[i] = T(sum);
    } else {
      sgd_element(SgdRates<Accumulated<T>>(sgd), weight, momentum, i, sum);
    }
  }
};

}  // namespace

template <typename T>
cudaError_t launch_linear_grad_w(const LinearGradWArgs<T>& args, const GemmTiling& tiling,
                                 void* workspace, cudaStream_t stream) {
  const StoreOrUpdate<T> epilogue{args.dw, args.db,         args.w,   args.w_momentum,
                                  args.b,  args.b_momentum, args.sgd, args.in};
  const auto launch = [&](auto gemm) {
    return gemm(args.dy, args.out, args.x, args.in, args.out, args.in, args.n, epilogue, tiling,
                workspace, stream);
  };
  return args.has_bias() ? launch(launch_gemm<T, false, false, true, StoreOrUpdate<T>>)
                         : launch(launch_gemm<T, false, false, false, StoreOrUpdate<T>>);
}

#define RIDGELINE_LAUNCH_GRAD_W(T)                                                               \
  template cudaError_t launch_linear_grad_w(const LinearGradWArgs<T>&, const GemmTiling&, void*, \
                                            cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(RIDGELINE_LAUNCH_GRAD_W)

}  // namespace ridgeline::cuda
