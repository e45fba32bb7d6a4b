#include "ridgeline/cuda/plain/accumulate.cuh"
#include "ridgeline/cuda/plain/index.cuh"
#include "ridgeline/cuda/plain/join.h"

namespace ridgeline::cuda {
namespace {

template <typename T>
__global__ void add_kernel(const __grid_constant__ AddArgs<T> args) {
  using A = Accumulated<T>;
  for (int64_t i = first_index(); i < args.count; i += index_stride()) {
    A sum = A(args.xs[0][i]);
    for (int x = 1; x < args.inputs; ++x) sum += A(args.xs[x][i]);
    args.y[i] = T(sum * A(args.scale));
  }
}

template <typename T>
__global__ void multiply_kernel(const T* a, const T* b, T* y, int64_t count) {
  using A = Accumulated<T>;
  for (int64_t i = first_index(); i < count; i += index_stride()) y[i] = T(A(a[i]) * A(b[i]));
}

// blockIdx.y is the input.
template <typename T>
__global__ void concat_kernel(const __grid_constant__ ConcatArgs<T> args) {
  const int x = int(blockIdx.y);
  const int64_t begin = args.begin[x], width = args.begin[x + 1] - begin;
  const int64_t whole = args.begin[args.inputs];
  for (int64_t i = first_index(); i < args.rows * width; i += index_stride()) {
    args.y[i / width * whole + begin + i % width] = args.xs[x][i];
  }
}

}  // namespace

template <typename T>
cudaError_t launch_add(const AddArgs<T>& args, cudaStream_t stream) {
  add_kernel<T><<<blocks_for(args.count), kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_multiply(const T* a, const T* b, T* y, int64_t count, cudaStream_t stream) {
  multiply_kernel<T><<<blocks_for(count), kThreads, 0, stream>>>(a, b, y, count);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_concat(const ConcatArgs<T>& args, cudaStream_t stream) {
  const int64_t each = args.rows * args.begin[args.inputs] / args.inputs;
  const dim3 grid{blocks_for(each), unsigned(args.inputs)};
  concat_kernel<T><<<grid, kThreads, 0, stream>>>(args);
  return cudaGetLastError();
}

#define INSTANTIATE(T)                                                                    \
  template cudaError_t launch_add<T>(const AddArgs<T>&, cudaStream_t);                    \
  template cudaError_t launch_multiply<T>(const T*, const T*, T*, int64_t, cudaStream_t); \
  template cudaError_t launch_concat<T>(const ConcatArgs<T>&, cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace ridgeline::cuda
