#pragma once

// Copies images from global to shared memory with kThreads threads, several loads in flight each
// and no divisions.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "ridgeline/cuda/conv/pooled.h"
#include "ridgeline/cuda/device/async_copy.cuh"
#include "ridgeline/cuda/plain/accumulate.cuh"

namespace ridgeline::cuda {

// The number of threads along a row of this many elements.
__device__ inline int lanes_along(int columns) {
  int lanes = 1;
  while (lanes < columns && lanes < 32) lanes *= 2;
  return lanes;
}

// A row's position among planes of `count` rows, which advances by a fixed step.
struct RowPlace {
  int c, y;

  __device__ RowPlace(int row, int count) : c(row / count), y(row % count) {}
  __device__ void move(int step, int count) {
    y += step;
    while (y >= count) y -= count, ++c;
  }
};

// Calls put(channel, row, column, element) for the elements of `channels` planes of h rows of
// `columns`.
template <int kThreads, typename Element, typename Put>
__device__ void for_elements(const Element* from, int channels, int h, int columns, Put put) {
  constexpr int kAhead = 8;
  const int lanes = lanes_along(columns), step = kThreads / lanes, rows = channels * h;
  const int begin = threadIdx.x / lanes;
  for (int column = threadIdx.x % lanes; column < columns; column += lanes) {
    RowPlace place(begin, h);
    for (int row = begin; row < rows; row += kAhead * step) {
      Element elements[kAhead];
#pragma unroll
      for (int e = 0; e < kAhead; ++e) {
        if (row + e * step < rows) elements[e] = from[(row + e * step) * columns + column];
      }
#pragma unroll
      for (int e = 0; e < kAhead; ++e) {
        if (row + e * step < rows) put(place.c, place.y, column, elements[e]);
        place.move(step, h);
      }
    }
  }
}

// f'(x) as a function of y = f(x), for the non-decreasing activations.
template <typename A>
__device__ inline A rising_slope(ActivationFn activation, A y) {
  if (activation == ActivationFn::relu) return y > A(0) ? A(1) : A(0);
  if (activation == ActivationFn::tanh) return A(1) - y * y;
  return activation == ActivationFn::sigmoid ? y * (A(1) - y) : A(1);
}

// The gradient of one 2 x 2 window: the slope at the first maximum, zero elsewhere.
template <typename T>
struct QuadGrad {
  int best;  // the index, row by row
  T slope;

  __device__ QuadGrad(const T (&a)[4], T dy, ActivationFn activation) : best(0) {
    using A = Accumulated<T>;
    A most = A(a[0]);
#pragma unroll
    for (int e = 1; e < 4; ++e) {
      const A value = A(a[e]);
      const bool wins = (value > most) | (isnan(value) & !isnan(most));  // without a branch
      best = wins ? e : best, most = wins ? value : most;
    }
    slope = T(A(dy) * rising_slope(activation, most));
  }
  __device__ T at(int e) const { return e == best ? slope : T(0.0f); }
};

// Two neighbouring values, in one load if kEven states that they are aligned to their combined
// size.
template <bool kEven, typename T>
__device__ inline void load_two(const T* from, T& first, T& second) {
  struct alignas(2 * sizeof(T)) Two {
    T first, second;
  };
  if constexpr (kEven) {
    const Two two = *reinterpret_cast<const Two*>(from);
    first = two.first, second = two.second;
  } else {
    first = from[0], second = from[1];
  }
}

// A 2 x 2 window in rows of w values.
template <bool kEven, typename T>
__device__ inline void load_quad(const T* corner, int w, T (&quad)[4]) {
  load_two<kEven>(corner, quad[0], quad[1]);
  load_two<kEven>(corner + w, quad[2], quad[3]);
}

}  // namespace ridgeline::cuda
