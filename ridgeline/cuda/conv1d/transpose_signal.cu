#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "ridgeline/cuda/conv1d/transpose_signal.h"

namespace ridgeline::cuda {
namespace {

constexpr int kEdge = 32;

// One block transposes 32 x 32 of sample blockIdx.x through shared memory: to[c, r] = from[r, c]
// for `rows` x `columns`. Samples are from_stride and to_stride apart. Rows of `to` from `columns`
// to `to_rows` become zero.
template <typename T>
__global__ void transpose_signal_kernel(const T* from, T* to, int rows, int columns, int to_rows,
                                        int64_t from_stride, int64_t to_stride) {
  __shared__ T tile[kEdge][kEdge + 1];
  from += blockIdx.x * from_stride;
  to += blockIdx.x * to_stride;
  const int column = blockIdx.y * kEdge, row = blockIdx.z * kEdge;
  for (int r = threadIdx.y; r < kEdge; r += 8) {
    if (row + r < rows && column + int(threadIdx.x) < columns) {
      tile[r][threadIdx.x] = from[int64_t(row + r) * columns + column + int(threadIdx.x)];
    } else {
      tile[r][threadIdx.x] = T(0.0f);
    }
  }
  __syncthreads();
  for (int r = threadIdx.y; r < kEdge; r += 8) {
    if (column + r < to_rows && row + int(threadIdx.x) < rows) {
      to[int64_t(column + r) * rows + row + int(threadIdx.x)] = tile[threadIdx.x][r];
    }
  }
}

}  // namespace

template <typename T>
cudaError_t launch_transpose_signal(const SignalTranspose& shape, bool to_rows, const T* from,
                                    T* to, cudaStream_t stream) {
  const int64_t plain = int64_t(shape.channels) * shape.length;
  const int64_t padded = int64_t(shape.pitch) * shape.channels;
  const int rows = to_rows ? shape.channels : shape.length;
  const int columns = to_rows ? shape.length : shape.channels;
  const int covered = to_rows ? shape.pitch : columns;
  const dim3 grid(unsigned(shape.n), unsigned((covered + kEdge - 1) / kEdge),
                  unsigned((rows + kEdge - 1) / kEdge));
  transpose_signal_kernel<T><<<grid, dim3(kEdge, 8), 0, stream>>>(
      from, to, rows, columns, covered, to_rows ? plain : padded, to_rows ? padded : plain);
  return cudaGetLastError();
}

template cudaError_t launch_transpose_signal(const SignalTranspose&, bool, const __nv_bfloat16*,
                                             __nv_bfloat16*, cudaStream_t);
template cudaError_t launch_transpose_signal(const SignalTranspose&, bool, const __half*, __half*,
                                             cudaStream_t);
template cudaError_t launch_transpose_signal(const SignalTranspose&, bool, const float*, float*,
                                             cudaStream_t);

}  // namespace ridgeline::cuda
