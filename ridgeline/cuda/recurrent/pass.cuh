#pragma once

#include "ridgeline/cuda/recurrent/block_product.cuh"
#include "ridgeline/cuda/recurrent/persistent.h"

namespace ridgeline::cuda::recurrent {

// The row distance between the gates of a block's product: its units have their rows in each.
constexpr int forward_gate_rows(Cell cell, int row_tiles) {
  return 16 * row_tiles / cell_gates(cell) / 2 * 2;
}

// Two neighbouring values, the second of which may be missing (`both`), in one access of 2 *
// sizeof(T) bytes if they are aligned (`even`: all rows have an even length).
template <typename T>
struct alignas(2 * sizeof(T)) TwoOf {
  T first, second;
};
template <typename T>
__device__ inline void store_two(T* to, float2 v, bool even, bool both) {
  if (even) {
    *reinterpret_cast<TwoOf<T>*>(to) = {T(v.x), T(v.y)};
  } else {
    to[0] = T(v.x);
    if (both) to[1] = T(v.y);
  }
}
template <typename T>
__device__ inline float2 load_two(const T* from, bool both) {
  return {float(from[0]), both ? float(from[1]) : 0.0f};
}

// Accesses this memory by an address that stays in a register. The compiler would otherwise
// recompute the address of `extern __shared__` from a special register at every use, which is slow.
__device__ inline float* held_address(float* shared) {
  uint32_t address = smem_address(shared);
  asm volatile("" : "+r"(address));
  return static_cast<float*>(__cvta_shared_to_generic(address));
}

// The indices of a block and a thread of a persistent pass, which both directions share. A thread
// that applies gates has two neighbouring units of one sample or several.
template <int kPanel>
struct PassPlace {
  // Copies, because anything behind a reference is read again after every word that is sent.
  const PassShape shape;
  const Sequence s;
  int tile, group, layer;
  int first_sample, samples, panels;  // of the block's group
  int thread;                         // among those that apply gates; negative for others
  int unit_in_block, unit;            // this thread's first unit; past all units if it has none
  int first_in_panel;                 // the first of this thread's samples, see in_panel
  int warp;
  bool even, both;  // rows have an even number of units; this thread has two units

  __device__ PassPlace(const PassShape& shape, const Sequence& s, int first, int all_samples)
      : shape(shape), s(s) {
    tile = blockIdx.x % shape.tiles;
    group = blockIdx.x / shape.tiles % shape.groups;
    layer = blockIdx.x / (shape.tiles * shape.groups);
    first_sample = first + group * shape.group_samples;
    samples = min(shape.group_samples, first + all_samples - first_sample);
    panels = (samples + kPanel - 1) / kPanel;
    warp = threadIdx.x / 32;
    thread = int(threadIdx.x) - kThreads;
    unit_in_block = 2 * (thread & ((1 << shape.pair_bits) - 1));
    const int in_cluster = tile % shape.cluster * shape.units + unit_in_block;
    unit = tile / shape.cluster * shape.cluster_units + in_cluster;
    if (unit_in_block >= shape.units || in_cluster >= shape.cluster_units || unit >= s.hidden) {
      unit = 1 << 30;
    }
    even = s.hidden % 2 == 0;
    both = unit + 1 < s.hidden;
    const int j = thread >> shape.pair_bits;
    first_in_panel = shape.pair_bits == 2   ? (j & ~7) | (j & 3) << 1 | (j >> 2 & 1)
                     : shape.pair_bits == 3 ? (j & ~7) | (j & 1) << 2 | (j >> 1 & 3)
                                            : j;
  }

  __device__ bool has_unit() const { return unit < s.hidden; }
  // This thread's i-th sample of a panel. The sums of the samples that half a warp reads together
  // are in different banks, and neighbours, which share a sector of the exchanged state, are in one
  // warp.
  __device__ int in_panel(int i) const {
    return first_in_panel + (i * kGateThreads >> shape.pair_bits);
  }
  __device__ bool has(int panel, int i) const {
    const int j = (thread + i * kGateThreads) >> shape.pair_bits;
    return has_unit() && j < kPanel && kPanel * panel + in_panel(i) < samples;
  }
  // The index in the whole batch.
  __device__ int sample(int panel, int i) const {
    return first_sample + kPanel * panel + in_panel(i);
  }
  __device__ int group_panels() const { return (shape.group_samples + kPanel - 1) / kPanel; }
  // Whether a panel has samples in its second tile.
  __device__ bool two_tiles(int panel) const { return samples - kPanel * panel > 8; }
  // Which part of the inner extent this warp has. It differs between blocks, so that not all of
  // them read the same memory at once.
  __device__ int slice() const { return (warp + tile) % kWarps; }
  // Row [b, t] of a sample of `length` timesteps.
  __device__ int row(int step, int panel, int i, int length) const {
    return sample(panel, i) * s.steps + s.time(step, length);
  }
  // The index in [B, T, D].
  __device__ int place(int step, int panel, int i, int length) const {
    return row(step, panel, i, length) * s.directions + s.direction;
  }

  // Calls f(panel, i) for all samples of this thread.
  template <int kOwn, typename F>
  __device__ void for_each(const F& f) const {
    for (int panel = 0; panel < panels; ++panel) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) f(panel, i);
    }
  }
  // This thread's part of a state [B, H], which may be null; 0 if there is none.
  template <typename T>
  __device__ float2 state_of(const T* all, int panel, int i) const {
    if (all == nullptr || !has(panel, i)) return {0.0f, 0.0f};
    return load_two(all + int64_t(sample(panel, i)) * s.hidden + unit, both);
  }
  template <typename T>
  __device__ void store_state(T* all, int panel, int i, float2 v) const {
    if (all == nullptr || !has(panel, i)) return;
    store_two(all + int64_t(sample(panel, i)) * s.hidden + unit, v, even, both);
  }
  __device__ int length_of(int panel, int i) const {
    return has(panel, i) ? s.length(sample(panel, i)) : 0;
  }

  // This warp's memory for weights that are not in registers.
  __device__ uint4* kept(uint4* all, int chunk_words) const {
    return all + int64_t(warp) * shape.kept_chunks * chunk_words;
  }
  __device__ uint4* streamed_weights(uint4* all, int chunk_words) const {
    return all + (int64_t(blockIdx.x) * kWarps + warp) * shape.streamed_chunks * chunk_words;
  }
};

// The floats that a thread that applies gates keeps per sample: h and a length, and c for an LSTM.
constexpr int state_floats(Cell cell) { return cell == Cell::lstm ? 5 : 3; }

// The state that such a thread keeps for each of its samples between timesteps, in shared memory.
template <Cell kCell, int kOwn>
class ThreadStates {
 public:
  static constexpr int kFloats = state_floats(kCell), kPanelFloats = kFloats * kOwn * kGateThreads;

  __device__ ThreadStates(float* memory, int thread) : memory_(memory), thread_(thread) {}
  // h and, for an LSTM, c; or their gradients.
  __device__ float2& h(int panel, int i) const { return at<float2>(panel, i, 0); }
  __device__ float2& c(int panel, int i) const { return at<float2>(panel, i, 2); }
  // The number of timesteps; 0 if there is no sample.
  __device__ int length(int panel, int i) const { return at<int>(panel, i, kFloats - 1); }
  __device__ void set_length(int panel, int i, int length) const {
    at<int>(panel, i, kFloats - 1) = length;
  }

 private:
  template <typename V>
  __device__ V& at(int panel, int i, int value) const {
    float* all = memory_ + ((panel * kOwn + i) * kFloats + value) * kGateThreads;
    return reinterpret_cast<V*>(all)[thread_];
  }
  float* memory_;
  int thread_;
};

// Prefetches the pairs of V that a thread reads from global memory, some iterations ahead, into its
// own shared memory.
template <typename V, int kOwn, int kValues>
class FetchRing {
 public:
  static constexpr int kIterationBytes = kOwn * kValues * kGateThreads * int(sizeof(TwoOf<V>));

  __device__ FetchRing(void* memory, int thread, int depth)
      : memory_(static_cast<TwoOf<V>*>(memory) + thread), depth_(depth) {}

  __device__ void ask(int iteration, int i, int value, const V* from, bool even, bool both) const {
    TwoOf<V>* to = at(iteration, i, value);
    if (even) {
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(smem_address(to)), "l"(from),
                   "n"(sizeof(TwoOf<V>))
                   : "memory");
    } else {
      *to = {from[0], both ? from[1] : V(0.0f)};
    }
  }
  __device__ void set_zero(int iteration, int i, int value) const {
    *at(iteration, i, value) = {V(0.0f), V(0.0f)};
  }
  // Ends the prefetches of an iteration. It is called once for each iteration that was begun, plus
  // the depth.
  __device__ void end_iteration() const { asm volatile("cp.async.commit_group;" ::: "memory"); }
  __device__ void await() const {
    if (depth_ == kFetchDepth) {
      asm volatile("cp.async.wait_group %0;" ::"n"(kFetchDepth - 1) : "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
  }
  __device__ float2 get(int iteration, int i, int value) const {
    const TwoOf<V> v = *at(iteration, i, value);
    return {float(v.first), float(v.second)};
  }
  __device__ int depth() const { return depth_; }

 private:
  __device__ TwoOf<V>* at(int iteration, int i, int value) const {
    const int slot = depth_ == kFetchDepth ? iteration % kFetchDepth : 0;
    return memory_ + ((slot * kOwn + i) * kValues + value) * kGateThreads;
  }
  TwoOf<V>* memory_;
  int depth_;  // kFetchDepth or 1
};

// Which of a pass's buffers of partial sums an iteration uses.
__device__ inline int buffer_of(int iteration, const PassShape& shape) {
  return shape.buffers == 2 ? iteration & 1 : 0;
}

__device__ inline const float* sums_of(int iteration, const float* partials, int floats,
                                       const PassShape& shape) {
  return partials + buffer_of(iteration, shape) * shape.sum_parts * floats;
}

// Named barriers between the warps that multiply and those that apply the gates, one per buffer:
// the sums are ready; the sums have been read. And among the former: half of them have stored their
// sums.
enum { kSumsFull = 1, kSumsFree = 3, kSumsFolded = 5 };

// Arrives at a named barrier without waiting there.
__device__ inline void arrive_barrier(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// One iteration of a pass: a panel at a timestep.
struct Iteration {
  uint4* slot;
  int step = 0, panel = 0, count = 0;
};

// The cycles that a warp adds to its adaptive pause when it polled too early, and removes when it
// did not.
constexpr int kPauseMore = 32, kPauseLess = 2, kLongestPause = 4096;

// The loop of the warps that multiply, whose partial sums have a pitch of `floats`. An iteration
// begins as soon as its buffer has been read. With one or two panels, a state has not arrived yet
// when the previous one has been multiplied, and polling for it early keeps L2 from accepting the
// stores. A warp therefore learns how long to pause. With more panels, the next one arrives while
// one is multiplied.
template <typename Product, typename Place, typename Advance>
__device__ inline void multiply_iterations(Product& product, Iteration iteration, int iterations,
                                           const Place& place, const Advance& advance,
                                           float* partials, int floats) {
  using Panel = typename Product::Panel;
  const PassShape& shape = place.shape;
  const bool ahead = place.panels > 2;
  const bool folds = shape.sum_parts < kWarps, adds = place.warp < shape.sum_parts;
  float* own = partials + (adds ? place.warp : place.warp - shape.sum_parts) * floats;
  int pause = 0;
  Panel panel{iteration.slot, place.two_tiles(iteration.panel)};
  if (iterations > 0) product.begin(panel);
  while (iteration.count < iterations) {
    const int count = iteration.count, buffer = buffer_of(count, shape);
    advance(iteration);
    const bool more = iteration.count < iterations;
    const Panel next{iteration.slot, place.two_tiles(iteration.panel)};
    const bool early = product.finish(panel, ahead && more ? next : Panel{}, [&](auto put) {
      if (count >= shape.buffers) named_barrier(kSumsFree + buffer, kBlockThreads);
      float* to = own + buffer * shape.sum_parts * floats;
      if (!folds || !adds) put(to, false);
      if (!folds) return;
      named_barrier(kSumsFolded, kThreads);
      if (adds) put(to, true);
    });
    arrive_barrier(kSumsFull + buffer, kBlockThreads);
    if (!ahead && more) {
      pause = early ? min(pause + kPauseMore, kLongestPause) : max(pause - kPauseLess, 0);
      wait_cycles(pause);
      product.begin(next);
    }
    panel = next;
  }
}

// Serves a warp without weights: its sums are zero. Zeros in place of its weights would make
// a NaN of an infinite state.
template <typename Place>
__device__ inline void idle_iterations(int iterations, const Place& place, float* partials,
                                       int floats) {
  const PassShape& shape = place.shape;
  const bool folds = shape.sum_parts < kWarps, adds = place.warp < shape.sum_parts;
  float* own = partials + (adds ? place.warp : place.warp - shape.sum_parts) * floats;
  for (int count = 0; count < iterations; ++count) {
    const int buffer = buffer_of(count, shape);
    if (count >= shape.buffers) named_barrier(kSumsFree + buffer, kBlockThreads);
    float* to = own + buffer * shape.sum_parts * floats;
    for (int i = int(threadIdx.x) % 32; (!folds || !adds) && i < floats; i += 32) to[i] = 0.0f;
    if (folds) named_barrier(kSumsFolded, kThreads);
    arrive_barrier(kSumsFull + buffer, kBlockThreads);
  }
}

// Called by the threads that apply gates: wait for an iteration's sums, and release them once they
// have been read.
__device__ inline void await_sums(int iteration, const PassShape& shape) {
  named_barrier(kSumsFull + buffer_of(iteration, shape), kBlockThreads);
}
__device__ inline void release_sums(int iteration, int iterations, const PassShape& shape) {
  if (iteration + shape.buffers >= iterations) return;  // no warp waits for it
  arrive_barrier(kSumsFree + buffer_of(iteration, shape), kBlockThreads);
}

// The sum of the warps' partial sums of two neighbouring rows.
template <int kCount>
__device__ inline float2 add_pairs(const float* at, int pitch) {
  float2 v[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) v[i] = *reinterpret_cast<const float2*>(at + i * pitch);
#pragma unroll
  for (int half = kCount / 2; half > 0; half /= 2) {
#pragma unroll
    for (int i = 0; i < half; ++i) {
      v[i].x += v[i + half].x;
      v[i].y += v[i + half].y;
    }
  }
  return v[0];
}
// Adds kParts of them, or half as many.
template <int kParts, int kPartFloats>
__device__ inline float2 add_parts(const float* at, const PassShape& shape) {
  if (kParts == kWarps && shape.sum_parts < kParts) return add_pairs<kParts / 2>(at, kPartFloats);
  return add_pairs<kParts>(at, kPartFloats);
}

// Words of places and samples past the last one are zero; others are absent until they are written.
// In the forward pass (kStates), slot 0 of each group has the initial state. `exchange` is the
// layer's. A thread has a word of a group in every gridDim.y-th slot: all but the first begin
// alike.
template <typename T, bool kStates>
__global__ void rnn_exchange_begin_kernel(PassShape shape, Sequence s, const T* h0,
                                          int first_sample, int samples, int unit_vec8s,
                                          uint4* exchange) {
  using H = Handed<T>;
  const int within = int(blockIdx.x * blockDim.x + threadIdx.x), group = int(blockIdx.z);
  if (within >= shape.step_words) return;
  const int slots = shape.slots(s.steps);
  const int word = within % int(shape.panel_words), panel = within / int(shape.panel_words);
  const SwappedWord swapped(word, shape.panel_samples);
  const int tile = word / 32 % 2, plane = word / 64 % H::kPlanes;
  const int vec8 = shape.swapped ? swapped.vec8 : word / (64 * H::kPlanes) * 4 + word / 2 % 4;
  const int unit = 8 * (vec8 % unit_vec8s);
  const int in_panel = shape.swapped ? swapped.sample : 8 * tile + word / 8 % 4 * 2 + word % 2;
  const int local = shape.panel_samples * panel + in_panel;
  const int sample = first_sample + group * shape.group_samples + local;
  const bool live = local < shape.group_samples && sample < first_sample + samples;
  uint32_t words[4];
  for (int e = 0; e < 4; ++e) {
    words[e] = live && vec8 < shape.vec8s && unit + 2 * e < s.hidden ? kAbsent : 0;
  }
  uint4* to = exchange + int64_t(group) * slots * shape.all_words + within;
  for (int slot = int(blockIdx.y); slot < slots; slot += int(gridDim.y)) {
    to[slot * shape.all_words] = uint4{words[0], words[1], words[2], words[3]};
  }
  for (int e = 0; kStates && blockIdx.y == 0 && e < 8; e += 2) {
    float v[2] = {};
    for (int k = 0; k < 2; ++k) {
      if (!live || h0 == nullptr || unit + e + k >= s.hidden) continue;
      float planes[H::kPlanes];
      H::take_apart(float(h0[int64_t(sample) * s.hidden + unit + e + k]), planes);
      v[k] = planes[plane];
    }
    words[e / 2] = Pair<typename H::Operand>::pack(v[0], v[1]);
  }
  if (kStates && blockIdx.y == 0) to[0] = uint4{words[0], words[1], words[2], words[3]};
}

}  // namespace ridgeline::cuda::recurrent
