#pragma once

#include <algorithm>

#include "ridgeline/cpu/simd/batch.h"
#include "ridgeline/cpu/simd/kernel.h"
#include "ridgeline/cpu/simd/packed_product.h"
#include "ridgeline/cpu/simd/recurrent.h"
#include "ridgeline/cpu/simd/work_stealing.h"

// Sequences and states in panels of the batch: helpers of the forward and backward kernels.
namespace ridgeline::cpu::simd {

// The reserve as timesteps of panels: [D][T][panels][vectors * H][kPanel]. The columns of the last
// panel past the batch may hold anything (plan/padding.h).
inline constexpr const char* kReserveFormat = "~simd:rnn";

template <typename T>
struct Sizes {
  RnnShape s;
  int64_t panels = panels_of<T>(s.batch);

  int64_t step(int64_t features) const { return panels * features * kPanel<T>; }
  size_t state() const { return size_t(step(s.hidden)); }
  size_t gates() const { return size_t(s.steps * step(gate_vectors(s.cell) * s.hidden)); }
  size_t reserve_bytes() const { return size_t(s.directions()) * gates() * sizeof(T); }
  size_t packed(int64_t units) const {
    return size_t((s.hidden + units - 1) / units * units * gates_of() * s.hidden);
  }
  int64_t gates_of() const { return ridgeline::gates(s.cell); }
};

// The number of tasks in which weights are packed.
inline constexpr int kPackParts = 16;

// Splits the hidden units of a timestep into tasks of a few tiles: small enough that other threads
// can take over those of a slow one, large enough that tiles of a task find the state in the
// first-level cache.
struct UnitTasks {
  int64_t hidden, tile;  // units
  int64_t most;          // tiles of a task
  int threads;

  // At least eight tasks per thread, if there are enough tiles.
  int64_t tiles() const { return std::clamp<int64_t>(hidden / (8 * threads * tile), 1, most); }

  int64_t size() const { return tile * tiles(); }
  int64_t count() const { return (hidden + size() - 1) / size(); }
  Range at(int64_t task) const { return {task * size(), std::min((task + 1) * size(), hidden)}; }
};

// Converts samples [n, features] at a[r * lda] to panels of one timestep, all features.
template <typename T>
void to_step(const T* a, int64_t lda, Range samples, int64_t features, T* panels) {
  batch_functions<T>().to_panels(a, lda, features, panels, samples, {0, features});
}

// Returns the samples of one thread of a batch-parallel kernel, which computes all of their units;
// whole groups.
template <typename T>
Range samples_of(const RnnShape& s, int thread, int threads) {
  return split(s.batch, thread, threads, kGroup<T>);
}

// Returns why a batch-parallel kernel refuses.
template <typename T>
std::string refuses_few_samples(const RnnShape& s, int threads) {
  if (groups_of<T>(s.batch) >= threads) return {};
  return fmt::format("{} samples are fewer than {} threads can share", s.batch, threads);
}

// Restricts a product in panels by timestep, of `times` timesteps, to the columns of `samples`.
template <typename T>
void multiply_samples(PackedProductArgs<T> g, const Sizes<T>& sizes, Range samples, int64_t times) {
  const int64_t tiles = packed_tiles<T>(g.rows);
  const T* b = g.b;
  T* c = g.c;
  const int64_t b_panel = g.b_stride, c_panel = g.c_stride;
  g.b_stride *= sizes.panels;
  g.c_stride *= sizes.panels;
  const Range panels = panels_with<T>(samples);
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    g.b = b + panel * b_panel;
    g.c = c + panel * c_panel;
    g.columns = columns_of<T>(samples, panel);
    packed_functions<T>().multiply(g, {0, tiles}, {0, times});
  }
}

// Converts a state [B, H], or zeros if there is none, to panels.
template <typename T>
void load_state(const T* state, const RnnShape& s, int64_t d, T* panels) {
  std::fill_n(panels, Sizes<T>{s}.state(), T(0));
  if (state != nullptr) {
    to_step(state + d * s.batch * s.hidden, s.hidden, {0, s.batch}, s.hidden, panels);
  }
}

// Converts lengths to numbers, all timesteps if null; zero past the batch.
template <typename T>
void load_lengths(const int32_t* lengths, const RnnShape& s, T* panels) {
  std::fill_n(panels, panels_of<T>(s.batch) * kPanel<T>, T(0));
  for (int64_t b = 0; b < s.batch; ++b) panels[b] = T(lengths != nullptr ? lengths[b] : s.steps);
}

// Returns x of timestep t of sample b; null in padding, where 0 times the contents need not be 0.
template <typename T>
const T* input_at(const RnnShape& s, const T* x, const int32_t* lengths, int64_t b, int64_t t) {
  const int64_t length = lengths != nullptr ? lengths[b] : s.steps;
  return t < length ? x + (b * s.steps + t) * s.in : nullptr;
}

// Returns h before timestep t of sample b in direction d, from y or h0; null for zeros, as in
// padding.
template <typename T>
const T* state_before(const RnnShape& s, const T* y, const T* h0, const int32_t* lengths, int64_t b,
                      int64_t d, int64_t t) {
  const int64_t H = s.hidden, length = lengths != nullptr ? lengths[b] : s.steps;
  const int64_t first = s.reverse(d) ? length - 1 : 0, back = s.reverse(d) ? 1 : -1;
  if (t >= length) return nullptr;
  if (t == first) return h0 != nullptr ? h0 + (d * s.batch + b) * H : nullptr;
  return y + ((b * s.steps + t + back) * s.directions() + d) * H;
}

// Copies zeros if `from` is null.
template <typename T>
void copy_or_clear(const T* from, int64_t count, T* to) {
  if (from != nullptr) {
    std::copy_n(from, count, to);
  } else {
    std::fill_n(to, count, T(0));
  }
}

inline ThreadPool& pool_of(const RemainingOps& rest) {
  return const_cast<ThreadPool&>(cpu_runtime(rest.runtime).pool());
}

}  // namespace ridgeline::cpu::simd
