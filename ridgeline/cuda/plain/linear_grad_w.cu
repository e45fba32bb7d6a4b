#include "ridgeline/cuda/plain/gemm.cuh"
#include "ridgeline/cuda/plain/sgd.cuh"

namespace ridgeline::cuda {
namespace {

// The gradient of one weight or bias: stored, or applied immediately.
template <typename T>
struct StoreOrUpdate {
  using A = Accumulated<T>;
  T *dw, *db;
  A *acc_dw, *acc_db;
  T *w, *b;
  A *w_momentum, *b_momentum;
  SgdSettings sgd;
  int columns;

  __device__ void operator()(int row, int col, A sum) const {
    put(dw, acc_dw, w, w_momentum, int64_t(row) * columns + col, sum);
  }
  __device__ void row_sum(int row, A sum) const { put(db, acc_db, b, b_momentum, row, sum); }

 private:
  __device__ void put(T* gradient, A* acc_gradient, T* weight, A* momentum, int64_t i,
                      A sum) const {
    if (acc_gradient != nullptr) {
      acc_gradient[i] = sum;
    } else if (weight == nullptr) {
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
  const StoreOrUpdate<T> epilogue{args.dw, args.db,         args.acc_dw,     args.acc_db, args.w,
                                  args.b,  args.w_momentum, args.b_momentum, args.sgd,    args.in};
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
