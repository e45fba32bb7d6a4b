#include <algorithm>
#include <cstdint>

#include "ridgeline/cuda/plain/accumulate.cuh"
#include "ridgeline/cuda/plain/transpose.h"

namespace ridgeline::cuda {
namespace {

// Tiles of 32 x 32, so that reads and writes are both contiguous.
template <typename T>
__global__ void transpose_kernel(const T* from, T* to, int rows, int columns) {
  __shared__ T tile[32][33];
  from += int64_t(blockIdx.z) * rows * columns;
  to += int64_t(blockIdx.z) * rows * columns;
  const int row = blockIdx.y * 32, column = blockIdx.x * 32;
  for (int y = threadIdx.y; y < 32; y += 8) {
    if (row + y < rows && column + int(threadIdx.x) < columns) {
      tile[y][threadIdx.x] = from[int64_t(row + y) * columns + column + threadIdx.x];
    }
  }
  __syncthreads();
  for (int y = threadIdx.y; y < 32; y += 8) {
    if (column + y < columns && row + int(threadIdx.x) < rows) {
      to[int64_t(column + y) * rows + row + threadIdx.x] = tile[threadIdx.x][y];
    }
  }
}

}  // namespace

template <typename T>
cudaError_t launch_transpose(const T* from, T* to, int rows, int columns, int count,
                             cudaStream_t stream) {
  constexpr int kMost = 65535;  // of a grid's third dimension
  for (int done = 0; done < count; done += kMost) {
    const dim3 grid((columns + 31) / 32, (rows + 31) / 32, std::min(count - done, kMost));
    const int64_t offset = int64_t(done) * rows * columns;
    transpose_kernel<T>
        <<<grid, dim3(32, 8), 0, stream>>>(from + offset, to + offset, rows, columns);
  }
  return cudaGetLastError();
}

#define RIDGELINE_LAUNCH_TRANSPOSE(T) \
  template cudaError_t launch_transpose(const T*, T*, int, int, int, cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(RIDGELINE_LAUNCH_TRANSPOSE)

}  // namespace ridgeline::cuda
