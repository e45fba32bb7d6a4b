#include "ridgeline/cuda/recurrent/matrix.h"

namespace ridgeline::cuda::recurrent {
namespace {

constexpr int kTile = 64, kDepth = 16, kEach = 4;  // 16 x 16 threads, 4 x 4 results each

// Tiles of both operands in shared memory, on CUDA cores: any architecture, any layout.
template <typename T>
__global__ void __launch_bounds__(256) rnn_matrix_kernel(MatrixArgs<T> p) {
  using A = Accumulated<T>;
  __shared__ A a[kDepth][kTile + 1], b[kDepth][kTile + 1];
  const int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  A sum[kEach][kEach] = {};
  for (int k0 = 0; k0 < p.k; k0 += kDepth) {
    for (int i = threadIdx.x; i < kTile * kDepth; i += blockDim.x) {
      // Threads run along the contiguous axis.
      const int ak = p.a_column == 1 ? i % kDepth : i / kTile;
      const int am = p.a_column == 1 ? i / kDepth : i % kTile;
      a[ak][am] = row + am < p.m && k0 + ak < p.k
                      ? A(p.a[(row + am) * p.a_row + (k0 + ak) * p.a_column])
                      : A(0);
      const int bk = p.b_column == 1 ? i / kTile : i % kDepth;
      const int bn = p.b_column == 1 ? i % kTile : i / kDepth;
      b[bk][bn] = column + bn < p.n && k0 + bk < p.k
                      ? A(p.b[(k0 + bk) * p.b_row + (column + bn) * p.b_column])
                      : A(0);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) sum[i][j] += a[k][ty + 16 * i] * b[k][tx + 16 * j];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int m = row + ty + 16 * i, n = column + tx + 16 * j;
      if (m >= p.m || n >= p.n) continue;
      const int64_t at = m * p.d_row + n;
      const A before = p.adds ? static_cast<const A*>(p.d.data)[at] : A(0);
      p.d.put(at, before + sum[i][j]);
    }
  }
}

}  // namespace

template <typename T>
cudaError_t launch_matrix(const MatrixArgs<T>& args, cudaStream_t stream) {
  const dim3 grid((args.n + kTile - 1) / kTile, (args.m + kTile - 1) / kTile);
  rnn_matrix_kernel<T><<<grid, 256, 0, stream>>>(args);
  return cudaGetLastError();
}

#define INSTANTIATE(T) template cudaError_t launch_matrix<T>(const MatrixArgs<T>&, cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace ridgeline::cuda::recurrent
