#include <cmath>

#include "ridgeline/cuda/plain/accumulate.cuh"
#include "ridgeline/cuda/plain/activation.cuh"
#include "ridgeline/cuda/plain/index.cuh"
#include "ridgeline/cuda/plain/pool.h"

namespace ridgeline::cuda {
namespace {

// The taps [first, last) of output `output` that are inside an axis of `extent`, and their
// position.
struct Taps {
  int first, last, place;  // place: the position of tap 0
  int dilation;

  __device__ Taps(const Axis& axis, int output, int extent)
      : place(output * axis.stride - axis.pad), dilation(axis.dilation) {
    first = place < 0 ? (-place + dilation - 1) / dilation : 0;
    last = place >= extent ? 0 : min(axis.kernel, (extent - place + dilation - 1) / dilation);
    last = max(last, first);
  }
  __device__ int at(int tap) const { return place + tap * dilation; }
  __device__ int count() const { return last - first; }
};

// The outputs [first, last) of an axis whose windows may contain `place`.
struct Windows {
  int first, last;

  __device__ Windows(const Axis& axis, int place, int outputs) {
    const int reach = axis.dilation * (axis.kernel - 1);
    first = max(0, (place + axis.pad - reach + axis.stride - 1) / axis.stride);
    last = min(outputs, (place + axis.pad) / axis.stride + 1);
  }
};
// Whether a window of the axis has a tap at `place`.
__device__ bool holds(const Axis& axis, int output, int place) {
  return (place + axis.pad - output * axis.stride) % axis.dilation == 0;
}

// The first index of the window's maximum; -1 in an empty window. NaN counts as larger than
// everything else.
template <typename T>
__device__ int largest(const T* plane, int width, const Taps& down, const Taps& right) {
  using A = Accumulated<T>;
  int best = -1;
  A most = A(0);
  for (int u = down.first; u < down.last; ++u) {
    for (int v = right.first; v < right.last; ++v) {
      const int at = down.at(u) * width + right.at(v);
      const A value = A(plane[at]);
      if (best < 0 || value > most || (isnan(value) && !isnan(most))) {
        best = at;
        most = value;
      }
    }
  }
  return best;
}

template <typename T>
__global__ void max_pool_kernel(PoolGeometry g, const T* x, T* y) {
  const int64_t count = int64_t(g.n) * g.c * g.p * g.q;
  for (int64_t j = first_index(); j < count; j += index_stride()) {
    const Taps down(g.down, int(j / g.q % g.p), g.h), right(g.right, int(j % g.q), g.w);
    const T* plane = x + j / (int64_t(g.p) * g.q) * g.h * g.w;
    const int best = largest(plane, g.w, down, right);
    y[j] = best < 0 ? T(-INFINITY) : plane[best];
  }
}

template <typename T>
__global__ void max_pool_grad_kernel(PoolGeometry g, const T* x, const T* dy, T* dx) {
  using A = Accumulated<T>;
  const int64_t count = int64_t(g.n) * g.c * g.h * g.w;
  for (int64_t j = first_index(); j < count; j += index_stride()) {
    const int s = int(j % g.w), r = int(j / g.w % g.h);
    const int64_t plane = j / (int64_t(g.w) * g.h);
    const Windows rows(g.down, r, g.p), columns(g.right, s, g.q);
    A sum = A(0);
    for (int p = rows.first; p < rows.last; ++p) {
      if (!holds(g.down, p, r)) continue;
      for (int q = columns.first; q < columns.last; ++q) {
        if (!holds(g.right, q, s)) continue;
        const int best =
            largest(x + plane * g.h * g.w, g.w, Taps(g.down, p, g.h), Taps(g.right, q, g.w));
        if (best == r * g.w + s) sum += A(dy[(plane * g.p + p) * g.q + q]);
      }
    }
    dx[j] = T(sum);
  }
}

// Calls f(plane, row, column) with the upper left pixel of each 2 x 2 window, including those that
// an odd extent cuts off.
template <typename F>
__device__ void for_quads(const PoolGeometry& g, F f) {
  const int rows = (g.h + 1) / 2, columns = (g.w + 1) / 2;
  const int64_t count = int64_t(g.n) * g.c * rows * columns;
  for (int64_t j = first_index(); j < count; j += index_stride()) {
    f(j / (int64_t(rows) * columns), int(j / columns % rows), int(j % columns));
  }
}

template <typename T>
__global__ void activation_pool_kernel(PoolGeometry g, ActivationFn activation, const T* z, T* a,
                                       T* y) {
  using A = Accumulated<T>;
  for_quads(g, [&](int64_t plane, int row, int column) {
    const int64_t corner = (plane * g.h + 2 * row) * g.w + 2 * column;
    T most = T(0.0f);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (2 * row + e / 2 >= g.h || 2 * column + e % 2 >= g.w) continue;
      const int64_t at = corner + e / 2 * g.w + e % 2;
      const T value = T(activation_value(activation, A(z[at])));
      a[at] = value;
      if (e == 0 || A(value) > A(most) || isnan(A(value))) most = value;
    }
    if (row < g.p && column < g.q) y[(plane * g.p + row) * g.q + column] = most;
  });
}

template <typename T>
__global__ void pool_activation_grad_kernel(PoolGeometry g, ActivationFn activation, const T* a,
                                            const T* dy, T* dz) {
  using A = Accumulated<T>;
  for_quads(g, [&](int64_t plane, int row, int column) {
    const int64_t corner = (plane * g.h + 2 * row) * g.w + 2 * column;
    const bool whole = row < g.p && column < g.q;
    int best = -1;
    A most = A(0);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (!whole) continue;
      const A value = A(a[corner + e / 2 * g.w + e % 2]);
      if (best < 0 || value > most || (isnan(value) && !isnan(most))) best = e, most = value;
    }
    // The pool's gradient is not rounded in between: it is a copy, so storing it would change
    // nothing.
    const A slope =
        whole ? A(dy[(plane * g.p + row) * g.q + column]) * activation_slope(activation, most)
              : A(0);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (2 * row + e / 2 >= g.h || 2 * column + e % 2 >= g.w) continue;
      dz[corner + e / 2 * g.w + e % 2] = T(e == best ? slope : A(0));
    }
  });
}

template <typename T>
__global__ void avg_pool_kernel(PoolGeometry g, bool by_window, const T* x, T* y) {
  using A = Accumulated<T>;
  const int64_t count = int64_t(g.n) * g.c * g.p * g.q;
  for (int64_t j = first_index(); j < count; j += index_stride()) {
    const Taps down(g.down, int(j / g.q % g.p), g.h), right(g.right, int(j % g.q), g.w);
    const T* plane = x + j / (int64_t(g.p) * g.q) * g.h * g.w;
    A sum = A(0);
    for (int u = down.first; u < down.last; ++u) {
      for (int v = right.first; v < right.last; ++v) {
        sum += A(plane[int64_t(down.at(u)) * g.w + right.at(v)]);
      }
    }
    const int taps = by_window ? g.down.kernel * g.right.kernel : down.count() * right.count();
    y[j] = T(sum / A(taps));
  }
}

template <typename T>
__global__ void avg_pool_grad_kernel(PoolGeometry g, bool by_window, const T* dy, T* dx) {
  using A = Accumulated<T>;
  const int64_t count = int64_t(g.n) * g.c * g.h * g.w;
  for (int64_t j = first_index(); j < count; j += index_stride()) {
    const int s = int(j % g.w), r = int(j / g.w % g.h);
    const int64_t plane = j / (int64_t(g.w) * g.h);
    const Windows rows(g.down, r, g.p), columns(g.right, s, g.q);
    A sum = A(0);
    for (int p = rows.first; p < rows.last; ++p) {
      if (!holds(g.down, p, r)) continue;
      for (int q = columns.first; q < columns.last; ++q) {
        if (!holds(g.right, q, s)) continue;
        const int taps = by_window ? g.down.kernel * g.right.kernel
                                   : Taps(g.down, p, g.h).count() * Taps(g.right, q, g.w).count();
        sum += A(dy[(plane * g.p + p) * g.q + q]) / A(taps);
      }
    }
    dx[j] = T(sum);
  }
}

int64_t outputs(const PoolGeometry& g) { return int64_t(g.n) * g.c * g.p * g.q; }
int64_t inputs(const PoolGeometry& g) { return int64_t(g.n) * g.c * g.h * g.w; }

}  // namespace

template <typename T>
cudaError_t launch_max_pool(const PoolGeometry& g, const T* x, T* y, cudaStream_t stream) {
  max_pool_kernel<T><<<blocks_for(outputs(g)), kThreads, 0, stream>>>(g, x, y);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_max_pool_grad(const PoolGeometry& g, const T* x, const T* dy, T* dx,
                                 cudaStream_t stream) {
  max_pool_grad_kernel<T><<<blocks_for(inputs(g)), kThreads, 0, stream>>>(g, x, dy, dx);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_activation_pool(const PoolGeometry& g, ActivationFn activation, const T* z, T* a,
                                   T* y, cudaStream_t stream) {
  activation_pool_kernel<T>
      <<<blocks_for(inputs(g) / 4 + 1), kThreads, 0, stream>>>(g, activation, z, a, y);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_pool_activation_grad(const PoolGeometry& g, ActivationFn activation, const T* a,
                                        const T* dy, T* dz, cudaStream_t stream) {
  pool_activation_grad_kernel<T>
      <<<blocks_for(inputs(g) / 4 + 1), kThreads, 0, stream>>>(g, activation, a, dy, dz);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_avg_pool(const PoolGeometry& g, bool by_window, const T* x, T* y,
                            cudaStream_t stream) {
  avg_pool_kernel<T><<<blocks_for(outputs(g)), kThreads, 0, stream>>>(g, by_window, x, y);
  return cudaGetLastError();
}

template <typename T>
cudaError_t launch_avg_pool_grad(const PoolGeometry& g, bool by_window, const T* dy, T* dx,
                                 cudaStream_t stream) {
  avg_pool_grad_kernel<T><<<blocks_for(inputs(g)), kThreads, 0, stream>>>(g, by_window, dy, dx);
  return cudaGetLastError();
}

#define RIDGELINE_LAUNCH_POOL(T)                                                                   \
  template cudaError_t launch_max_pool(const PoolGeometry&, const T*, T*, cudaStream_t);           \
  template cudaError_t launch_max_pool_grad(const PoolGeometry&, const T*, const T*, T*,           \
                                            cudaStream_t);                                         \
  template cudaError_t launch_activation_pool(const PoolGeometry&, ActivationFn, const T*, T*, T*, \
                                              cudaStream_t);                                       \
  template cudaError_t launch_pool_activation_grad(const PoolGeometry&, ActivationFn, const T*,    \
                                                   const T*, T*, cudaStream_t);                    \
  template cudaError_t launch_avg_pool(const PoolGeometry&, bool, const T*, T*, cudaStream_t);     \
  template cudaError_t launch_avg_pool_grad(const PoolGeometry&, bool, const T*, T*, cudaStream_t);
RIDGELINE_CUDA_FOR_FLOATS(RIDGELINE_LAUNCH_POOL)

}  // namespace ridgeline::cuda
