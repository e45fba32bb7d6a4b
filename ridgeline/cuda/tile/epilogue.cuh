#pragma once

#include "ridgeline/cuda/plain/activation.cuh"
#include "ridgeline/cuda/plain/sgd.cuh"
#include "ridgeline/cuda/tile/head_sums.cuh"
#include "ridgeline/cuda/tile/tile.h"

// What is done with the sums of a tile. An epilogue's visit(f) calls f with a functor (row, col,
// sum) that is applied to each sum: one type per case, so that nothing is decided for each sum.
namespace ridgeline::cuda::tile {

// y = f(sum + b[col])
template <typename T>
struct BiasActivation {
  static constexpr bool kSumRows = false;
  T* y;
  const T* bias;
  int columns;
  ActivationFn activation;

  template <ActivationFn kActivation>
  struct With {
    T* y;
    const T* bias;
    int columns;

    __device__ void operator()(int row, int col, T sum) const {
      if (bias != nullptr) sum += bias[col];
      y[int64_t(row) * columns + col] = activation_value(kActivation, sum);
    }
  };

  template <typename F>
  __device__ void visit(F f) const {
    switch (activation) {
      case ActivationFn::relu:
        return f(With<ActivationFn::relu>{y, bias, columns});
      case ActivationFn::tanh:
        return f(With<ActivationFn::tanh>{y, bias, columns});
      case ActivationFn::sigmoid:
        return f(With<ActivationFn::sigmoid>{y, bias, columns});
      case ActivationFn::gelu:
        return f(With<ActivationFn::gelu>{y, bias, columns});
      case ActivationFn::none:
        return f(With<ActivationFn::none>{y, bias, columns});
    }
  }
  __device__ void meanwhile() const {}
  __device__ void leave() const {}
};

// dx = sum * f'(saved), or sum
template <typename T>
struct StoreSlope {
  static constexpr bool kSumRows = false;
  T* dx;
  const T* saved;
  int columns;
  ActivationFn activation;

  __device__ void operator()(int row, int col, T sum) const {
    const int64_t i = int64_t(row) * columns + col;
    dx[i] = saved == nullptr ? sum : sum * activation_slope(activation, saved[i]);
  }
  template <typename F>
  __device__ void visit(F f) const {
    f(*this);
  }
  __device__ void meanwhile() const {}
  __device__ void leave() const {}
};

// The gradient of one weight or bias: stored, or applied immediately.
template <typename T>
struct StoreOrUpdate {
  static constexpr bool kSumRows = true;
  TileGradWArgs<T> args;

  struct Store {
    T *dw, *db;
    int columns;

    __device__ void operator()(int row, int col, T sum) const {
      dw[int64_t(row) * columns + col] = sum;
    }
    __device__ void row_sum(int row, T sum) const { db[row] = sum; }
  };
  struct Update {
    const LinearGradWArgs<T>& p;
    SgdRates<T> rates;

    __device__ void operator()(int row, int col, T sum) const {
      sgd_element(rates, p.w, p.w_momentum, int64_t(row) * p.in + col, sum);
    }
    __device__ void row_sum(int row, T sum) const {
      sgd_element(rates, p.b, p.b_momentum, row, sum);
    }
  };

  template <typename F>
  __device__ void visit(F f) const {
    const LinearGradWArgs<T>& p = args.product;
    if (p.w == nullptr) {
      f(Store{p.dw, p.db, p.in});
    } else {
      f(Update{p, SgdRates<T>(p.sgd)});
    }
  }
  __device__ void meanwhile() const {
    if (args.head.parts > 0) apply_head_sums(args.head);
  }
  // A block that has incremented the counter has read the tick.
  __device__ void leave() const {
    if (args.tick == nullptr) return;
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      if (atomicAdd(args.done, 1u) == gridDim.x - 1) {
        *args.done = 0;
        ++*args.tick;
      }
    }
  }
};

}  // namespace ridgeline::cuda::tile
