#include "ridgeline/cuda/plain/index.cuh"
#include "ridgeline/cuda/recurrent/exchange.cuh"
#include "ridgeline/cuda/recurrent/steps.h"
#include "ridgeline/cuda/recurrent/values.cuh"

namespace ridgeline::cuda::recurrent {
namespace {

template <typename T>
__global__ void rnn_begin_kernel(const T* h0, const T* c0, T* h, Accumulated<T>* c, int64_t count) {
  for (int64_t i = first_index(); i < count; i += index_stride()) {
    h[i] = h0 != nullptr ? h0[i] : T(0.0f);
    if (c != nullptr) c[i] = c0 != nullptr ? Accumulated<T>(c0[i]) : Accumulated<T>(0);
  }
}

// The sums of a gate of unit j of sample b, biases included.
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
    const A first = gates[0];  // gru's r, for the last gate
    if (kCell == Cell::gru && gate == 2) gates[3 * H] = from_h;
    gates[gate * H] = gate_value<kCell>(gate, from_x, from_h, &first);
  }
}

// The functions of a whole timestep have one row of blocks per sample, so they need not divide by
// H.
constexpr int kStepThreads = 128;

// Adds an operand to `to`, if there is one.
template <int kCount, typename T>
__device__ void add_mixed(const MixedIn<T>& from, int at, Accumulated<T> (&to)[kCount]) {
  using A = Accumulated<T>;
  if (!from) return;
  A v[kCount];
  if (from.is_accumulator) {
    load_values<kCount>(static_cast<const A*>(from.data) + at, v);
  } else {
    load_values<kCount>(static_cast<const T*>(from.data) + at, v);
  }
#pragma unroll
  for (int e = 0; e < kCount; ++e) to[e] += v[e];
}

// Half types use the fast functions, as the persistent passes do.
template <typename T>
using StepMath = std::conditional_t<sizeof(T) == 2, FastMath, ExactMath>;

// A thread has kCount neighbouring units; H is a multiple of kCount.
template <Cell kCell, typename T, bool kFused, int kCount>
__global__ void rnn_forward_kernel(ForwardArgs<T> args, int step) {
  using A = Accumulated<T>;
  using Math = StepMath<T>;
  constexpr int kSaved = cell_saved(kCell), kGates = cell_gates(kCell);
  const Sequence& s = args.sequence;
  const int H = s.hidden, j = (blockIdx.x * kStepThreads + threadIdx.x) * kCount;
  if (j >= H) return;
  for (int b = blockIdx.y; b < s.batch; b += gridDim.y) {
    const int length = s.length(b), t = s.time(step, length);
    const int64_t i = int64_t(b) * H + j;
    T* y = args.y + s.place(b, t) * H + j;
    T* reserve = args.reserve + s.place(b, t) * kSaved * H + j;
    if (step >= length) {
      store_zeros<kCount>(y);
      for (int v = 0; args.reserve != nullptr && v < kSaved; ++v)
        store_zeros<kCount>(reserve + v * H);
      continue;
    }
    A gates[4][kCount], x[kGates][kCount];
    const A* from_h = args.from_h + int64_t(b) * cell_vectors(kCell) * H + j;
#pragma unroll
    for (int v = 0; v < (kFused ? kGates : cell_vectors(kCell)); ++v) {
      if (args.from_h != nullptr) {
        load_values<kCount>(from_h + v * H, gates[v]);
      } else {
#pragma unroll
        for (int e = 0; e < kCount; ++e) gates[v][e] = A(0);
      }
    }
    if constexpr (kFused) {
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        load_values<kCount>(args.from_x + s.row(b, t) * kGates * H + gate * H + j, x[gate]);
        add_mixed<kCount>(args.b_ih, gate * H + j, x[gate]);
        add_mixed<kCount>(args.b_hh, gate * H + j, gates[gate]);
      }
    }
    A c[kCount] = {}, h[kCount];
    load_values<kCount>(args.h + i, h);
    if constexpr (kCell == Cell::lstm) load_values<kCount>(args.c + i, c);
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
      A own[4];
#pragma unroll
      for (int v = 0; v < 4; ++v) own[v] = v < cell_vectors(kCell) ? gates[v][e] : A(0);
      if constexpr (kFused) {
#pragma unroll
        for (int gate = 0; gate < kGates; ++gate) {
          const A sum = own[gate];
          own[gate] = gate_value<kCell, Math>(gate, x[gate][e], sum, own);
          if (kCell == Cell::gru && gate == 2) own[3] = sum;
        }
      }
      h[e] = A(T(next_state<kCell, Math>(own, h[e], c[e])));
#pragma unroll
      for (int v = 0; v < 4; ++v) gates[v][e] = own[v];
    }
    store_values<kCount>(args.h + i, h);
    store_values<kCount>(y, h);
    if constexpr (kCell == Cell::lstm) store_values<kCount>(args.c + i, c);
    if (args.reserve == nullptr) continue;
#pragma unroll
    for (int v = 0; v < (kSaved < 4 ? kSaved : 4); ++v)
      store_values<kCount>(reserve + v * H, gates[v]);
    if constexpr (kCell == Cell::lstm) store_values<kCount>(reserve + 4 * H, c);
  }
}

template <Cell kCell, typename T, int kCount>
__global__ void rnn_backward_kernel(BackwardArgs<T> args, int step) {
  using A = Accumulated<T>;
  constexpr int kSaved = cell_saved(kCell), kVectors = cell_vectors(kCell);
  constexpr int kGates = cell_gates(kCell);
  const Sequence& s = args.sequence;
  const int H = s.hidden, j = (blockIdx.x * kStepThreads + threadIdx.x) * kCount;
  if (j >= H) return;
  for (int b = blockIdx.y; b < s.batch; b += gridDim.y) {
    const int length = s.length(b), t = s.time(step, length);
    const int64_t i = int64_t(b) * H + j, at = s.place(b, t);
    A gradients[4][kCount] = {};
    if (step < length) {
      A saved[5][kCount] = {}, y[kCount] = {}, before[kCount] = {};
      A dh[kCount], dy[kCount], dc[kCount] = {};
#pragma unroll
      for (int v = 0; v < kSaved; ++v) {
        load_values<kCount>(args.reserve + (at * kSaved + v) * H + j, saved[v]);
      }
      if constexpr (kSaved == 0) load_values<kCount>(args.y + at * H + j, y);
      if constexpr (kSaved > 0) {
        const int64_t earlier = step > 0 ? s.place(b, s.time(step - 1, length)) : 0;
        const T* first = kCell == Cell::lstm ? args.c0 : args.h0;
        if (step > 0) {
          load_values<kCount>(kCell == Cell::lstm ? args.reserve + (earlier * kSaved + 4) * H + j
                                                  : args.y + earlier * H + j,
                              before);
        } else if (first != nullptr) {
          load_values<kCount>(first + s.direction * int64_t(s.batch) * H + i, before);
        }
      }
      load_values<kCount>(args.dh + i, dh);
      load_values<kCount>(args.dy + at * H + j, dy);
      if constexpr (kCell == Cell::lstm) load_values<kCount>(args.dc + i, dc);
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        UnitSaved<A> unit{};
#pragma unroll
        for (int v = 0; v < kSaved; ++v) unit.gates[v] = saved[v][e];
        unit.y = y[e];
        unit.before = before[e];
        A own[4] = {};
        dh[e] = unit_grad(unit_slopes<kCell, StepMath<T>>(unit), dh[e] + dy[e], dc[e], own);
#pragma unroll
        for (int v = 0; v < kVectors; ++v) gradients[v][e] = own[v];
      }
      store_values<kCount>(args.dh + i, dh);
      if constexpr (kCell == Cell::lstm) store_values<kCount>(args.dc + i, dc);
    }
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      store_values<kCount>(args.gate_gradients + (at * kVectors + v) * H + j, gradients[v]);
    }
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
      store_values<kCount>(args.compact + (int64_t(b) * kGates + gate) * H + j,
                           gradients[hidden_vector(kCell, gate)]);
    }
  }
}

template <typename From, typename To>
__global__ void rnn_state_kernel(const From* from, To* to, int64_t count) {
  for (int64_t i = first_index(); i < count; i += index_stride()) {
    to[i] = from != nullptr ? To(from[i]) : To(0.0f);
  }
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

unsigned blocks_of(const Sequence& s) { return blocks_for(int64_t(s.batch) * s.hidden); }
dim3 step_blocks(const Sequence& s, int count) {
  const int each = kStepThreads * count;
  return dim3(unsigned((s.hidden + each - 1) / each), unsigned(s.batch < 65535 ? s.batch : 65535));
}
// Units per thread: as many as 16 bytes of sums hold.
template <typename T>
constexpr int kStepValues = 16 / sizeof(Accumulated<T>);

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
    with_values<kStepValues<T>>({args.from_x, args.from_h, args.b_ih.data, args.b_hh.data, args.h,
                                 args.c, args.y, args.reserve},
                                args.sequence.hidden, [&]<int kCount>() {
                                  const dim3 blocks = step_blocks(args.sequence, kCount);
                                  if (fused) {
                                    rnn_forward_kernel<kCell, T, true, kCount>
                                        <<<blocks, kStepThreads, 0, stream>>>(args, step);
                                  } else {
                                    rnn_forward_kernel<kCell, T, false, kCount>
                                        <<<blocks, kStepThreads, 0, stream>>>(args, step);
                                  }
                                });
  });
}

template <typename T>
cudaError_t launch_backward(const BackwardArgs<T>& args, int step, cudaStream_t stream) {
  return with_cell(args.cell, [&]<Cell kCell>() {
    with_values<kStepValues<T>>(
        {args.y, args.reserve, args.h0, args.c0, args.dy, args.dh, args.dc, args.gate_gradients,
         args.compact},
        args.sequence.hidden, [&]<int kCount>() {
          rnn_backward_kernel<kCell, T, kCount>
              <<<step_blocks(args.sequence, kCount), kStepThreads, 0, stream>>>(args, step);
        });
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

#define INSTANTIATE(T)                                                                          \
  template cudaError_t launch_begin<T>(const T*, const T*, T*, Accumulated<T>*, int64_t,        \
                                       cudaStream_t);                                           \
  template cudaError_t launch_gate<T>(const ForwardArgs<T>&, int, int, cudaStream_t);           \
  template cudaError_t launch_forward<T>(const ForwardArgs<T>&, int, bool, cudaStream_t);       \
  template cudaError_t launch_backward<T>(const BackwardArgs<T>&, int, cudaStream_t);           \
  template cudaError_t launch_widen_state<T>(const T*, Accumulated<T>*, int64_t, cudaStream_t); \
  template cudaError_t launch_narrow_state<T>(const Accumulated<T>*, T*, int64_t, cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(INSTANTIATE)
#undef INSTANTIATE

}  // namespace ridgeline::cuda::recurrent
