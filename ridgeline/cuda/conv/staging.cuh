#pragma once

// Images on their way from global to shared memory: kThreads threads, several loads under way at a
// time, and nothing divided on the way.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "ridgeline/cuda/conv/pooled.h"
#include "ridgeline/cuda/device/async_copy.cuh"
#include "ridgeline/cuda/plain/accumulate.cuh"

namespace ridgeline::cuda {

// The threads along a row of so many elements.
__device__ inline int lanes_along(int columns) {
  int lanes = 1;
  while (lanes < columns && lanes < 32) lanes *= 2;
  return lanes;
}

// The place of a row among planes of `count` rows, moved on by a fixed step.
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

// f' at y, of the activations that do not decrease.
template <typename A>
__device__ inline A rising_slope(ActivationFn activation, A y) {
  if (activation == ActivationFn::relu) return y > A(0) ? A(1) : A(0);
  if (activation == ActivationFn::tanh) return A(1) - y * y;
  return activation == ActivationFn::sigmoid ? y * (A(1) - y) : A(1);
}

// One window of 2 x 2 of the gradient: the slope at the first maximum, else zero.
template <typename T>
struct QuadGrad {
  int best;  // row by row
  T slope;

  __device__ QuadGrad(const T (&a)[4], T dy, ActivationFn activation) : best(0) {
    using A = Accumulated<T>;
    A most = A(a[0]);
#pragma unroll
    for (int e = 1; e < 4; ++e) {
      const A value = A(a[e]);
      const bool wins = (value > most) | (isnan(value) & !isnan(most));  // no branch
      best = wins ? e : best, most = wins ? value : most;
    }
    slope = T(A(dy) * rising_slope(activation, most));
  }
  __device__ T at(int e) const { return e == best ? slope : T(0.0f); }
};

// Two neighbours; in one load where kEven says that they start at a multiple of their size.
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

// A window of 2 x 2 of rows of w numbers.
template <bool kEven, typename T>
__device__ inline void load_quad(const T* corner, int w, T (&quad)[4]) {
  load_two<kEven>(corner, quad[0], quad[1]);
  load_two<kEven>(corner + w, quad[2], quad[3]);
}

}  // namespace ridgeline::cuda
