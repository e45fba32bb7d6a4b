#pragma once

#include "ridgeline/cuda/conv/implicit.h"
#include "ridgeline/cuda/conv/larger.cuh"
#include "ridgeline/cuda/conv/tensor.cuh"

namespace ridgeline::cuda {

// One window of 2 x 2 of outputs o and o + 1 of image i, by the thread that has its sums: `upper`
// and `lower` are its rows, each {left of o, left of o + 1, right of o, right of o + 1}. Windows
// and channels past the last are left out.
template <typename T>
__device__ void store_window(const ImplicitShape& shape, const LooseIn<T>& b,
                             const PooledOutput<T>& pool, T* y, int64_t i, int window, int o,
                             const float (&upper)[4], const float (&lower)[4]) {
  const int out_h = shape.out_h(), out_w = shape.out_w();
  const int columns = out_w / 2, windows = out_h / 2 * columns;
  if (window >= windows) return;
  struct alignas(2 * sizeof(T)) Two {
    T left, right;
  };
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    if (o + e >= shape.k) continue;
    const float bias = b ? b[o + e] : 0.0f;
    const int64_t plane = i * shape.k + o + e;
    const auto value = [&](float sum) { return T(fast_curve<T>(pool.curve, sum + bias)); };
    if (pool.a == nullptr) {
      y[plane * windows + window] =
          value(larger(larger(upper[e], upper[e + 2]), larger(lower[e], lower[e + 2])));
      continue;
    }
    const Two first{value(upper[e]), value(upper[e + 2])};
    const Two second{value(lower[e]), value(lower[e + 2])};
    T* corner = pool.a + (plane * out_h + window / columns * 2) * out_w + window % columns * 2;
    *reinterpret_cast<Two*>(corner) = first;  // out_w is even where a is wanted
    *reinterpret_cast<Two*>(corner + out_w) = second;
    y[plane * windows + window] = T(larger(larger(float(first.left), float(first.right)),
                                           larger(float(second.left), float(second.right))));
  }
}

}  // namespace ridgeline::cuda
