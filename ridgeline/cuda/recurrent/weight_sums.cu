#include "ridgeline/cuda/plain/index.cuh"
#include "ridgeline/cuda/recurrent/values.cuh"
#include "ridgeline/cuda/recurrent/weight_sums.h"

namespace ridgeline::cuda::recurrent {
namespace {

constexpr int kRowThreads = 128;

// One row of blocks per timestep of a sample. Rows are a multiple of kCount values apart.
template <typename T, int kCount>
__global__ void rnn_states_before_kernel(Sequence s, const T* y, const T* h0, T* before) {
  const int H = s.hidden, j = (blockIdx.x * kRowThreads + threadIdx.x) * kCount;
  if (j >= H) return;
  for (int64_t row = blockIdx.y; row < int64_t(s.batch) * s.steps; row += gridDim.y) {
    const int b = int(row / s.steps), t = int(row % s.steps), length = s.length(b);
    const int earlier = s.reverse ? t + 1 : t - 1;
    Values<T, kCount> values = {};
    const auto take = [&](const T* from) {
      values = *reinterpret_cast<const Values<T, kCount>*>(from);
    };
    if (t < length && earlier >= 0 && earlier < length) {
      take(y + s.place(b, earlier) * H + j);
    } else if (t < length && h0 != nullptr) {
      take(h0 + (int64_t(s.direction) * s.batch + b) * H + j);
    }
    *reinterpret_cast<Values<T, kCount>*>(before + row * H + j) = values;
  }
}

template <typename T, int kCount>
__global__ void rnn_clear_padding_kernel(Sequence s, const T* x, int width, T* cleared) {
  const int j = (blockIdx.x * kRowThreads + threadIdx.x) * kCount;
  if (j >= width) return;
  for (int64_t row = blockIdx.y; row < int64_t(s.batch) * s.steps; row += gridDim.y) {
    const int b = int(row / s.steps), t = int(row % s.steps);
    const int64_t at = row * width + j;
    Values<T, kCount> values = {};
    if (t < s.length(b)) values = *reinterpret_cast<const Values<T, kCount>*>(x + at);
    *reinterpret_cast<Values<T, kCount>*>(cleared + at) = values;
  }
}

// parts[p, c] = the sum over every kBiasParts-th row, from the p-th on, of x[r * pitch + c], in
// groups of eight. A block has 32 * kCount columns, and its warps split the rows. kCount divides
// pitch and columns.
constexpr int kSumWarps = 8;

template <typename T, int kCount>
__global__ void rnn_column_parts_kernel(const T* x, int64_t rows, int64_t pitch, int columns,
                                        Accumulated<T>* parts) {
  using A = Accumulated<T>;
  __shared__ A part[kSumWarps][32 * kCount];
  const int in_block = threadIdx.x * kCount, first = blockIdx.x * (32 * kCount);
  A sums[kCount] = {};
  if (first + in_block < columns) {
    const int64_t stride = int64_t(gridDim.y) * kSumWarps;
#pragma unroll 4
    for (int64_t r = int64_t(blockIdx.y) * kSumWarps + threadIdx.y; r < rows; r += stride) {
      const auto values =
          *reinterpret_cast<const Values<T, kCount>*>(x + r * pitch + first + in_block);
#pragma unroll
      for (int i = 0; i < kCount; ++i) sums[i] += A(values.v[i]);
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) part[threadIdx.y][in_block + i] = sums[i];
  __syncthreads();
  for (int c = threadIdx.y * 32 + threadIdx.x; c < 32 * kCount; c += 32 * kSumWarps) {
    if (first + c >= columns) break;
    A sum = part[0][c];
    for (int warp = 1; warp < kSumWarps; ++warp) sum += part[warp][c];
    parts[int64_t(blockIdx.y) * columns + first + c] = sum;
  }
}

// db_ih and db_hh from the parts of all gate gradients: they differ in gru's last gate, which has a
// vector for each.
template <typename T>
__global__ void rnn_bias_gradients_kernel(const Accumulated<T>* parts, int gates, int vectors,
                                          int hidden, MixedOut<T> db_ih, MixedOut<T> db_hh) {
  const int column = blockIdx.x * kRowThreads + threadIdx.x, columns = vectors * hidden;
  if (column >= columns) return;
  Accumulated<T> sum = parts[column];
  for (int p = 1; p < kBiasParts; ++p) sum += parts[int64_t(p) * columns + column];
  const int vector = column / hidden;
  if (db_ih && vector < gates) db_ih.put(column, sum);
  if (!db_hh) return;
  if (vectors == gates || vector < gates - 1) db_hh.put(column, sum);
  if (vector == gates) db_hh.put(column - hidden, sum);
}

// One row of blocks per timestep of a sample; each thread has `count` of its `width` values.
dim3 row_blocks(const Sequence& s, int width, int count) {
  const int each = kRowThreads * count;
  const int64_t rows = int64_t(s.batch) * s.steps;
  return dim3(unsigned((width + each - 1) / each), unsigned(rows < 65535 ? rows : 65535));
}

}  // namespace

template <typename T>
cudaError_t launch_states_before(const Sequence& s, const T* y, const T* h0, T* before,
                                 cudaStream_t stream) {
  with_values<16 / sizeof(T)>({y, h0, before}, s.hidden, [&]<int kCount>() {
    rnn_states_before_kernel<T, kCount>
        <<<row_blocks(s, s.hidden, kCount), kRowThreads, 0, stream>>>(s, y, h0, before);
  });
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_clear_padding(const Sequence& s, const T* x, int width, T* cleared,
                                 cudaStream_t stream) {
  with_values<16 / sizeof(T)>({x, cleared}, width, [&]<int kCount>() {
    rnn_clear_padding_kernel<T, kCount>
        <<<row_blocks(s, width, kCount), kRowThreads, 0, stream>>>(s, x, width, cleared);
  });
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_bias_gradients(const T* gate_gradients, int64_t rows, int64_t pitch, Cell cell,
                                  int hidden, Accumulated<T>* parts, MixedOut<T> db_ih,
                                  MixedOut<T> db_hh, cudaStream_t stream) {
  if (!db_ih && !db_hh) return cudaSuccess;
  const int vectors = cell_vectors(cell), columns = vectors * hidden;
  with_values<16 / sizeof(T)>({gate_gradients}, hidden, [&]<int kCount>() {
    const dim3 blocks(unsigned((columns + 32 * kCount - 1) / (32 * kCount)), kBiasParts);
    rnn_column_parts_kernel<T, kCount>
        <<<blocks, dim3(32, kSumWarps), 0, stream>>>(gate_gradients, rows, pitch, columns, parts);
  });
  rnn_bias_gradients_kernel<T>
      <<<(columns + kRowThreads - 1) / kRowThreads, kRowThreads, 0, stream>>>(
          parts, cell_gates(cell), vectors, hidden, db_ih, db_hh);
  return cudaGetLastError();
}

#define INSTANTIATE(T)                                                                            \
  template cudaError_t launch_states_before<T>(const Sequence&, const T*, const T*, T*,           \
                                               cudaStream_t);                                     \
  template cudaError_t launch_clear_padding<T>(const Sequence&, const T*, int, T*, cudaStream_t); \
  template cudaError_t launch_bias_gradients<T>(const T*, int64_t, int64_t, Cell, int,            \
                                                Accumulated<T>*, MixedOut<T>, MixedOut<T>,        \
                                                cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace ridgeline::cuda::recurrent
