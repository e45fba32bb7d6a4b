#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "ridgeline/cuda/device/wgmma.cuh"

// What is done with a finished sum before it is stored to D. An epilogue is a functor
//   float2 operator()(int row, int col, float2 sum, bool pair)
// over D[row, col] and D[row, col + 1]; the second exists only if `pair`. col is even. The result
// is rounded once and stored to D. Each element is visited once, so an epilogue may update other
// matrices in place, and may read D's old value through a pointer of its own. kPointwise: it
// touches no memory, and may also be called for elements outside D.
namespace ridgeline::cuda {

template <typename T>
__device__ inline float2 load_pair(const T* p, bool pair) {
  return {float(p[0]), pair ? float(p[1]) : 0.0f};
}
template <typename T>
__device__ inline void store_pair(T* p, float2 value, bool pair) {
  p[0] = T(value.x);
  if (pair) p[1] = T(value.y);
}
// Aligned pairs of floats take one access. The row pitch decides, so the choice is uniform over a
// warp.
__device__ inline float2 load_pair(const float* p, bool pair) {
  if (pair && reinterpret_cast<uintptr_t>(p) % 8 == 0) return *reinterpret_cast<const float2*>(p);
  return {p[0], pair ? p[1] : 0.0f};
}
__device__ inline void store_pair(float* p, float2 value, bool pair) {
  if (pair && reinterpret_cast<uintptr_t>(p) % 8 == 0) {
    *reinterpret_cast<float2*>(p) = value;
  } else {
    p[0] = value.x;
    if (pair) p[1] = value.y;
  }
}

struct StoreSum {
  static constexpr bool kPointwise = true;
  __device__ float2 operator()(int, int, float2 sum, bool) const { return sum; }
};

// y = f(sum + bias[col]), where f is relu or the identity.
template <bool kRelu>
struct BiasActivation {
  static constexpr bool kPointwise = false;
  const float* bias;

  __device__ float2 operator()(int, int col, float2 sum, bool pair) const {
    const float2 b = load_pair(bias + col, pair);
    return {activate(sum.x + b.x), activate(sum.y + b.y)};
  }
  __device__ static float activate(float x) {
    return kRelu && x < 0.0f ? 0.0f : x;  // NaN stays NaN
  }
};
using BiasOnly = BiasActivation<false>;
using BiasRelu = BiasActivation<true>;

// Values of a training step that a captured launch reads from memory.
struct SgdScalars {
  float lr, momentum, weight_decay;
  float gradient_scale;  // 1 / loss scale, times 1 / ranks if gradients are summed over ranks
};

// The sum is the gradient of w[m, n]: g = scale * sum + decay * w; v = momentum * v + g; w -= lr *
// v, in place. D receives the new w (and may be w). velocity may be null; momentum is then not
// used.
struct SgdUpdate {
  static constexpr bool kPointwise = false;
  float* w;
  float* velocity;
  int64_t ldw;  // the pitch of both
  const SgdScalars* scalars;

  __device__ float2 operator()(int row, int col, float2 sum, bool pair) const {
    const SgdScalars s = *scalars;
    const int64_t at = row * ldw + col;
    float2 weight = load_pair(w + at, pair);
    float2 g = {s.gradient_scale * sum.x + s.weight_decay * weight.x,
                s.gradient_scale * sum.y + s.weight_decay * weight.y};
    if (velocity != nullptr) {
      const float2 v = load_pair(velocity + at, pair);
      g = {s.momentum * v.x + g.x, s.momentum * v.y + g.y};
      store_pair(velocity + at, g, pair);
    }
    weight = {weight.x - s.lr * g.x, weight.y - s.lr * g.y};
    store_pair(w + at, weight, pair);
    return weight;
  }
};

// Calls the epilogue for a pair that may extend past D[m, n].
template <typename Epilogue>
__device__ inline float2 finish(const Epilogue& epilogue, int row, int col, float2 sum, int m,
                                int n) {
  if constexpr (!Epilogue::kPointwise) {
    if (row >= m || col >= n) return {0.0f, 0.0f};
  }
  return epilogue(row, col, sum, col + 1 < n);
}

// Two sums in D's type, packed: a pair of halves is one register.
template <typename Out>
__device__ inline uint32_t pack_pair(float2 value) {
  uint32_t packed;
  if constexpr (std::is_same_v<Out, __nv_bfloat16>) {
    const __nv_bfloat162 pair = __float22bfloat162_rn(value);
    memcpy(&packed, &pair, 4);
  } else {
    const __half2 pair = __float22half2_rn(value);
    memcpy(&packed, &pair, 4);
  }
  return packed;
}

// How a GPU function addresses D: by its own rows and columns, or swapped if it computes D's
// transpose.
template <typename Out>
struct TileOutput {
  Out* d;
  int64_t ldd;
  int rows, cols;
  bool transposed;  // D[col of tile, row of tile]: a tile's column is contiguous
};

// Applies the epilogue to 8 adjacent elements D[row, col..] and stores them, 16 bytes at a time if
// D's alignment allows it.
template <typename Out, typename Epilogue>
__device__ inline void finish_eight(const float (&sum)[8], int row, int col,
                                    const TileOutput<Out>& out, const Epilogue& epilogue) {
  if (row >= out.rows || col >= out.cols) return;
  float2 value[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    value[i] = finish(epilogue, row, col + 2 * i, {sum[2 * i], sum[2 * i + 1]}, out.rows, out.cols);
  }
  Out* d = out.d + row * out.ldd + col;
  if (col + 8 <= out.cols && reinterpret_cast<uintptr_t>(d) % 16 == 0) {
    if constexpr (sizeof(Out) == 2) {
      *reinterpret_cast<uint4*>(d) = make_uint4(pack_pair<Out>(value[0]), pack_pair<Out>(value[1]),
                                                pack_pair<Out>(value[2]), pack_pair<Out>(value[3]));
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        reinterpret_cast<float4*>(d)[i] =
            make_float4(value[2 * i].x, value[2 * i].y, value[2 * i + 1].x, value[2 * i + 1].y);
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (col + 2 * i < out.cols) store_pair(d + 2 * i, value[i], col + 2 * i + 1 < out.cols);
    }
  }
}

// Finishes two elements: (row, col) and the next along D's rows.
template <typename Out, typename Epilogue>
__device__ inline void finish_pair(float2 sum, int row, int col, const TileOutput<Out>& out,
                                   const Epilogue& epilogue) {
  const int r = out.transposed ? col : row, c = out.transposed ? row : col;
  if (r >= out.rows || c >= out.cols) return;
  const float2 value = finish(epilogue, r, c, sum, out.rows, out.cols);
  Out* d = out.d + r * out.ldd + c;
  if constexpr (sizeof(Out) == 2) {
    if (c + 1 < out.cols && reinterpret_cast<uintptr_t>(d) % 4 == 0) {
      *reinterpret_cast<uint32_t*>(d) = pack_pair<Out>(value);
      return;
    }
  }
  store_pair(d, value, c + 1 < out.cols);
}

}  // namespace ridgeline::cuda
