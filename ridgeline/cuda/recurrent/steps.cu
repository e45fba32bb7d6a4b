#include <initializer_list>

#include "ridgeline/cuda/plain/index.cuh"
#include "ridgeline/cuda/recurrent/cell.cuh"
#include "ridgeline/cuda/recurrent/steps.h"

namespace ridgeline::cuda::recurrent {
namespace {

template <typename T>
__global__ void rnn_begin_kernel(const T* h0, const T* c0, T* h, Accumulated<T>* c, int64_t count) {
  for (int64_t i = first_index(); i < count; i += index_stride()) {
    h[i] = h0 != nullptr ? h0[i] : T(0.0f);
    if (c != nullptr) c[i] = c0 != nullptr ? Accumulated<T>(c0[i]) : Accumulated<T>(0);
  }
}

// The sums of a gate of unit j of item b, biases included.
template <Cell kCell, typename T>
__device__ Accumulated<T> sum_of_x(const ForwardArgs<T>& args, int64_t row, int gate, int j) {
  const int H = args.sequence.hidden, at = gate * H + j;
  const auto sum = args.from_x[row * cell_gates(kCell) * H + at];
  return args.b_ih ? sum + args.b_ih[at] : sum;
}
template <Cell kCell, typename T>
__device__ Accumulated<T> sum_of_h(const ForwardArgs<T>& args, int b, int gate, int j) {
  using A = Accumulated<T>;
  const int H = args.sequence.hidden, at = gate * H + j;
  const int64_t place = int64_t(b) * cell_vectors(kCell) * H + at;
  const A sum = args.from_h != nullptr ? args.from_h[place] : A(0);
  return args.b_hh ? sum + args.b_hh[at] : sum;
}

template <Cell kCell, typename T>
__global__ void rnn_gate_kernel(ForwardArgs<T> args, int step, int gate) {
  using A = Accumulated<T>;
  const Sequence& s = args.sequence;
  const int H = s.hidden;
  for (int64_t i = first_index(); i < int64_t(s.batch) * H; i += index_stride()) {
    const int b = int(i / H), j = int(i % H), length = s.length(b);
    if (step >= length) continue;
    A* gates = args.from_h + int64_t(b) * cell_vectors(kCell) * H + j;
    const A from_x = sum_of_x<kCell>(args, s.row(b, s.time(step, length)), gate, j);
    const A from_h = sum_of_h<kCell>(args, b, gate, j);
    const A first = gates[0];  // gru's r, when the last gate comes
    if (kCell == Cell::gru && gate == 2) gates[3 * H] = from_h;
    gates[gate * H] = gate_value<kCell>(gate, from_x, from_h, &first);
  }
}

// Of the kernels of a whole step, which have a row of blocks an item and need not divide by H.
constexpr int kStepThreads = 128;

template <Cell kCell, typename T, bool kFused>
__global__ void rnn_forward_kernel(ForwardArgs<T> args, int step) {
  using A = Accumulated<T>;
  constexpr int kSaved = cell_saved(kCell);
  const Sequence& s = args.sequence;
  const int H = s.hidden, j = blockIdx.x * kStepThreads + threadIdx.x;
  if (j >= H) return;
  for (int b = blockIdx.y; b < s.batch; b += gridDim.y) {
    const int length = s.length(b), t = s.time(step, length);
    const int64_t i = int64_t(b) * H + j;
    T* y = args.y + s.place(b, t) * H + j;
    T* reserve = args.reserve + s.place(b, t) * kSaved * H + j;
    if (step >= length) {
      *y = T(0.0f);
      for (int v = 0; args.reserve != nullptr && v < kSaved; ++v) reserve[v * H] = T(0.0f);
      continue;
    }
    A gates[4];
    if constexpr (kFused) {
#pragma unroll
      for (int gate = 0; gate < cell_gates(kCell); ++gate) {
        const A from_h = sum_of_h<kCell>(args, b, gate, j);
        gates[gate] =
            gate_value<kCell>(gate, sum_of_x<kCell>(args, s.row(b, t), gate, j), from_h, gates);
        if (kCell == Cell::gru && gate == 2) gates[3] = from_h;
      }
    } else {
#pragma unroll
      for (int v = 0; v < cell_vectors(kCell); ++v) {
        gates[v] = args.from_h[(int64_t(b) * cell_vectors(kCell) + v) * H + j];
      }
    }
    A c = kCell == Cell::lstm ? args.c[i] : A(0);
    const T h = T(next_state<kCell>(gates, A(args.h[i]), c));
    args.h[i] = h;
    *y = h;
    if constexpr (kCell == Cell::lstm) args.c[i] = c;
    if (args.reserve == nullptr) continue;
#pragma unroll
    for (int v = 0; v < (kSaved < 4 ? kSaved : 4); ++v) reserve[v * H] = T(gates[v]);
    if constexpr (kCell == Cell::lstm) reserve[4 * H] = T(c);
  }
}

template <Cell kCell, typename T>
__global__ void rnn_backward_kernel(BackwardArgs<T> args, int step) {
  using A = Accumulated<T>;
  constexpr int kSaved = cell_saved(kCell), kVectors = cell_vectors(kCell);
  constexpr int kGates = cell_gates(kCell);
  const Sequence& s = args.sequence;
  const int H = s.hidden, j = blockIdx.x * kStepThreads + threadIdx.x;
  if (j >= H) return;
  for (int b = blockIdx.y; b < s.batch; b += gridDim.y) {
    const int length = s.length(b), t = s.time(step, length);
    const int64_t i = int64_t(b) * H + j, at = s.place(b, t);
    A gradients[4] = {};
    if (step < length) {
      UnitSaved<A> saved{};
#pragma unroll
      for (int v = 0; v < kSaved; ++v) {
        saved.gates[v] = A(args.reserve[(at * kSaved + v) * H + j]);
      }
      if (kSaved == 0) saved.y = A(args.y[at * H + j]);
      if constexpr (kSaved > 0) {
        const int64_t earlier = step > 0 ? s.place(b, s.time(step - 1, length)) : 0;
        const T* first = kCell == Cell::lstm ? args.c0 : args.h0;
        if (step > 0) {
          saved.before = kCell == Cell::lstm ? A(args.reserve[(earlier * kSaved + 4) * H + j])
                                             : A(args.y[earlier * H + j]);
        } else if (first != nullptr) {
          saved.before = A(first[s.direction * int64_t(s.batch) * H + i]);
        }
      }
      A dc = kCell == Cell::lstm ? args.dc[i] : A(0);
      args.dh[i] = unit_grad<kCell>(saved, args.dh[i] + A(args.dy[at * H + j]), dc, gradients);
      if constexpr (kCell == Cell::lstm) args.dc[i] = dc;
    }
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      args.gate_gradients[(at * kVectors + v) * H + j] = T(gradients[v]);
    }
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      args.compact[(int64_t(b) * kGates + gate) * H + j] = T(gradients[hidden_vector(kCell, gate)]);
    }
  }
}

template <typename From, typename To>
__global__ void rnn_state_kernel(const From* from, To* to, int64_t count) {
  for (int64_t i = first_index(); i < count; i += index_stride()) {
    to[i] = from != nullptr ? To(from[i]) : To(0.0f);
  }
}

// So many neighbouring values, in one access.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Values {
  T v[kCount];
};

// A row of blocks a step of an item. Rows are a multiple of kCount values apart.
template <typename T, int kCount>
__global__ void rnn_states_before_kernel(Sequence s, const T* y, const T* h0, T* before) {
  const int H = s.hidden, j = (blockIdx.x * kStepThreads + threadIdx.x) * kCount;
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

template <typename T>
__global__ void rnn_transpose_kernel(const T* from, T* to, int rows, int columns) {
  __shared__ T tile[32][33];
  const int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32;
  for (int r = threadIdx.y; r < 32; r += blockDim.y) {
    if (row + r < rows && column < columns) {
      tile[r][threadIdx.x] = from[int64_t(row + r) * columns + column];
    }
  }
  __syncthreads();
  for (int c = threadIdx.y; c < 32; c += blockDim.y) {
    const int to_row = blockIdx.x * 32 + c;
    if (to_row < columns && row + int(threadIdx.x) < rows) {
      to[int64_t(to_row) * rows + row + threadIdx.x] = tile[threadIdx.x][c];
    }
  }
}

// parts[p, c] = the sum over every kBiasParts-th row of x[r * pitch + c], from the p-th on, in
// eights: a block has 32 * kCount columns, its warps share out the rows. kCount divides pitch and
// columns.
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
                                          int hidden, LooseOut<T> db_ih, LooseOut<T> db_hh) {
  const int column = blockIdx.x * kStepThreads + threadIdx.x, columns = vectors * hidden;
  if (column >= columns) return;
  Accumulated<T> sum = parts[column];
  for (int p = 1; p < kBiasParts; ++p) sum += parts[int64_t(p) * columns + column];
  const int vector = column / hidden;
  if (db_ih && vector < gates) db_ih.put(column, sum);
  if (!db_hh) return;
  if (vectors == gates || vector < gates - 1) db_hh.put(column, sum);
  if (vector == gates) db_hh.put(column - hidden, sum);
}

// Calls f with the cell as a template argument.
template <typename F>
cudaError_t with_cell(Cell cell, F f) {
  switch (cell) {
    case Cell::rnn_relu:
      f.template operator()<Cell::rnn_relu>();
      break;
    case Cell::rnn_tanh:
      f.template operator()<Cell::rnn_tanh>();
      break;
    case Cell::gru:
      f.template operator()<Cell::gru>();
      break;
    case Cell::lstm:
      f.template operator()<Cell::lstm>();
      break;
  }
  return cudaGetLastError();
}

// Calls f with how many values one access takes: 16 bytes where rows of `width` values lie so.
template <typename T, typename F>
void with_values(std::initializer_list<const void*> rows, int width, F f) {
  constexpr int kCount = 16 / sizeof(T);
  bool even = width % kCount == 0;
  for (const void* row : rows) even = even && reinterpret_cast<uintptr_t>(row) % 16 == 0;
  if (even) {
    f.template operator()<kCount>();
  } else {
    f.template operator()<1>();
  }
}

unsigned blocks_of(const Sequence& s) { return blocks_for(int64_t(s.batch) * s.hidden); }
dim3 step_blocks(const Sequence& s) {
  return dim3(unsigned((s.hidden + kStepThreads - 1) / kStepThreads),
              unsigned(s.batch < 65535 ? s.batch : 65535));
}

}  // namespace

template <typename T>
cudaError_t launch_begin(const T* h0, const T* c0, T* h, Accumulated<T>* c, int64_t count,
                         cudaStream_t stream) {
  rnn_begin_kernel<T><<<blocks_for(count), kThreads, 0, stream>>>(h0, c0, h, c, count);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_gate(const ForwardArgs<T>& args, int step, int gate, cudaStream_t stream) {
  return with_cell(args.cell, [&]<Cell kCell>() {
    rnn_gate_kernel<kCell, T><<<blocks_of(args.sequence), kThreads, 0, stream>>>(args, step, gate);
  });
}

template <typename T>
cudaError_t launch_forward(const ForwardArgs<T>& args, int step, bool fused, cudaStream_t stream) {
  return with_cell(args.cell, [&]<Cell kCell>() {
    const dim3 blocks = step_blocks(args.sequence);
    if (fused) {
      rnn_forward_kernel<kCell, T, true><<<blocks, kStepThreads, 0, stream>>>(args, step);
    } else {
      rnn_forward_kernel<kCell, T, false><<<blocks, kStepThreads, 0, stream>>>(args, step);
    }
  });
}

template <typename T>
cudaError_t launch_backward(const BackwardArgs<T>& args, int step, cudaStream_t stream) {
  return with_cell(args.cell, [&]<Cell kCell>() {
    rnn_backward_kernel<kCell, T>
        <<<step_blocks(args.sequence), kStepThreads, 0, stream>>>(args, step);
  });
}

template <typename T>
cudaError_t launch_widen_state(const T* from, Accumulated<T>* to, int64_t count,
                               cudaStream_t stream) {
  if (to == nullptr) return cudaSuccess;
  rnn_state_kernel<<<blocks_for(count), kThreads, 0, stream>>>(from, to, count);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_narrow_state(const Accumulated<T>* from, T* to, int64_t count,
                                cudaStream_t stream) {
  if (to == nullptr) return cudaSuccess;
  rnn_state_kernel<<<blocks_for(count), kThreads, 0, stream>>>(from, to, count);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_states_before(const Sequence& s, const T* y, const T* h0, T* before,
                                 cudaStream_t stream) {
  const int64_t rows = int64_t(s.batch) * s.steps;
  with_values<T>({y, h0, before}, s.hidden, [&]<int kCount>() {
    const int each = kStepThreads * kCount;
    const dim3 blocks(unsigned((s.hidden + each - 1) / each),
                      unsigned(rows < 65535 ? rows : 65535));
    rnn_states_before_kernel<T, kCount><<<blocks, kStepThreads, 0, stream>>>(s, y, h0, before);
  });
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_transpose(const T* from, T* to, int rows, int columns, cudaStream_t stream) {
  const dim3 grid((columns + 31) / 32, (rows + 31) / 32);
  rnn_transpose_kernel<T><<<grid, dim3(32, 8), 0, stream>>>(from, to, rows, columns);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_bias_gradients(const T* gate_gradients, int64_t rows, int64_t pitch, Cell cell,
                                  int hidden, Accumulated<T>* parts, LooseOut<T> db_ih,
                                  LooseOut<T> db_hh, cudaStream_t stream) {
  if (!db_ih && !db_hh) return cudaSuccess;
  const int vectors = cell_vectors(cell), columns = vectors * hidden;
  with_values<T>({gate_gradients}, hidden, [&]<int kCount>() {
    const dim3 blocks(unsigned((columns + 32 * kCount - 1) / (32 * kCount)), kBiasParts);
    rnn_column_parts_kernel<T, kCount>
        <<<blocks, dim3(32, kSumWarps), 0, stream>>>(gate_gradients, rows, pitch, columns, parts);
  });
  rnn_bias_gradients_kernel<T>
      <<<(columns + kStepThreads - 1) / kStepThreads, kStepThreads, 0, stream>>>(
          parts, cell_gates(cell), vectors, hidden, db_ih, db_hh);
  return cudaGetLastError();
}

#define INSTANTIATE(T)                                                                           \
  template cudaError_t launch_begin<T>(const T*, const T*, T*, Accumulated<T>*, int64_t,         \
                                       cudaStream_t);                                            \
  template cudaError_t launch_gate<T>(const ForwardArgs<T>&, int, int, cudaStream_t);            \
  template cudaError_t launch_forward<T>(const ForwardArgs<T>&, int, bool, cudaStream_t);        \
  template cudaError_t launch_backward<T>(const BackwardArgs<T>&, int, cudaStream_t);            \
  template cudaError_t launch_widen_state<T>(const T*, Accumulated<T>*, int64_t, cudaStream_t);  \
  template cudaError_t launch_narrow_state<T>(const Accumulated<T>*, T*, int64_t, cudaStream_t); \
  template cudaError_t launch_states_before<T>(const Sequence&, const T*, const T*, T*,          \
                                               cudaStream_t);                                    \
  template cudaError_t launch_transpose<T>(const T*, T*, int, int, cudaStream_t);                \
  template cudaError_t launch_bias_gradients<T>(const T*, int64_t, int64_t, Cell, int,           \
                                                Accumulated<T>*, LooseOut<T>, LooseOut<T>,       \
                                                cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace ridgeline::cuda::recurrent
