#pragma once

#include <algorithm>

#include "ridgeline/cpu/simd/batch.h"
#include "ridgeline/cpu/simd/recurrent.h"
#include "ridgeline/cpu/simd/row.h"

// Sequences and states in panels of the batch: what the rows of both directions share.
namespace ridgeline::cpu::simd {

// The reserve in time steps of panels: [D][T][panels][vectors * H][kPanel].
inline constexpr const char* kReserveFormat = "simd:rnn";

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

// [n, features] at a[r * lda] to panels of one step and back, all features.
template <typename T>
void to_step(const T* a, int64_t lda, int64_t n, int64_t features, T* panels) {
  batch_kernels<T>().to_panels(a, lda, features, panels, {0, n}, {0, features});
}

// A state [B, H], or zeros when there is none, in panels.
template <typename T>
void load_state(const T* state, const RnnShape& s, int64_t d, T* panels) {
  std::fill_n(panels, Sizes<T>{s}.state(), T(0));
  if (state != nullptr) {
    to_step(state + d * s.batch * s.hidden, s.hidden, s.batch, s.hidden, panels);
  }
}

// lengths as numbers, all steps when null; zero past the batch.
template <typename T>
void load_lengths(const int32_t* lengths, const RnnShape& s, T* panels) {
  std::fill_n(panels, panels_of<T>(s.batch) * kPanel<T>, T(0));
  for (int64_t b = 0; b < s.batch; ++b) panels[b] = T(lengths != nullptr ? lengths[b] : s.steps);
}

// h before each step of item b in direction d, to before[b, T, H]; zero in its padding. y and h0 as
// in a program.
template <typename T>
void states_before(const RnnShape& s, const T* y, const T* h0, const int32_t* lengths, int64_t b,
                   int64_t d, T* before) {
  const int64_t H = s.hidden, D = s.directions();
  const int64_t length = lengths != nullptr ? lengths[b] : s.steps;
  const int64_t first = s.reverse(d) ? length - 1 : 0, back = s.reverse(d) ? 1 : -1;
  for (int64_t t = 0; t < s.steps; ++t) {
    T* to = before + (b * s.steps + t) * H;
    const T* from = t == first ? (h0 != nullptr ? h0 + (d * s.batch + b) * H : nullptr)
                               : y + ((b * s.steps + t + back) * D + d) * H;
    if (t >= length || from == nullptr) {
      std::fill_n(to, H, T(0));
    } else {
      std::copy_n(from, H, to);
    }
  }
}

inline ThreadPool& pool_of(const Rest& rest) {
  return const_cast<ThreadPool&>(cpu_runtime(rest.runtime).pool());
}

}  // namespace ridgeline::cpu::simd
