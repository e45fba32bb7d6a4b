#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <type_traits>

#include "ridgeline/cuda/activation.h"
#include "ridgeline/cuda/plain/gather.h"
#include "ridgeline/cuda/plain/sgd.h"
#include "ridgeline/cuda/tile/ordered_bits.h"

// Products of a first layer in fp32 and fp64 on the int8 tensor cores, by an Ozaki scheme. The
// inputs are scale * (byte - center). The other factor becomes an integer multiple of `up`, a power
// of two chosen for each output so that its largest factor has 8 * digits - 2 bits; that integer is
// split into int8 digits of base 256, from -128 to 127. The products of each digit are summed
// exactly in 32-bit integers, the sums of the digits are combined exactly, and the result is
// rounded once. The only error of a sum is therefore that of its factors: at most 2^-30 (fp32) or
// 2^-54 (fp64) of the output's largest factor. An fp32 factor of at least 1/64 of the largest has
// no error.
//
// The sums of the digits suffice to turn a sum over bytes into a sum over (byte - center). The
// digits are stored in the order in which the product reads them, in groups of 32 outputs:
//   w  [group][digit][32][in]    dz [group][digit][32][n]      (digit 0 the lowest; pitches below)
namespace ridgeline::cuda {

constexpr int kInt8SplitGroup = 32;
// Sums of this many products of a byte and a digit fit in 32 bits.
constexpr int64_t kInt8SplitMostTerms = 65536;

template <typename T>
constexpr int kDigits = std::is_same_v<T, double> ? 7 : 4;

// Pitches in bytes of the matrices x [n][in], its transpose [in][n], and the digits.
constexpr int64_t int8_split_pitch(int64_t count) { return (count + 127) / 128 * 128; }
constexpr int64_t int8_split_rows(int64_t outputs, int digits) {
  return (outputs + kInt8SplitGroup - 1) / kInt8SplitGroup * kInt8SplitGroup * digits;
}

// A step's learning rate, for launches that run after the tick has advanced.
struct Int8SplitRate {
  double lr;
  int32_t tick;  // 0
};

// Gathers the bytes and labels of a step, plain and transposed, splits w into digits, stores the
// step's learning rate, and sets `most` and `dz_sums` to 0.
template <typename T>
struct Int8SplitPrepare {
  GatherArgs gather;  // y, scale and shift are not used
  const T* w;         // [out, in]
  uint8_t *x, *x_transposed;
  int8_t* w_digits;
  T* w_up;                // [out]
  int *w_sums, *dz_sums;  // [int8_split_rows]: sums of digits over inputs; over samples
  OrderedBits<T>* most;   // [out]
  const double* lr;       // [repeats]
  Int8SplitRate* rate;
  int in, out;
};
template <typename T>
cudaError_t launch_int8_split_prepare(const Int8SplitPrepare<T>& args, cudaStream_t stream);

// Splits dz [n, out] into digits; most: the largest |dz| of each output. Adds to `sums` unless it
// is null.
template <typename T>
struct Int8SplitGradient {
  const T* dz;
  const OrderedBits<T>* most;
  int8_t* digits;
  T* up;      // [out]
  int* sums;  // [int8_split_rows] or null
  int n, out;
};
template <typename T>
cudaError_t launch_int8_split_gradient(const Int8SplitGradient<T>& args, cudaStream_t stream);

using Int8SplitProduct = std::function<cudaError_t(cudaStream_t)>;

// y[n, out] = f(scale * x . w^T + b)
template <typename T>
struct Int8SplitLinear {
  int n, in, out;
  const uint8_t* x;
  const int8_t* w_digits;
  const T* w_up;
  const int* w_sums;
  const T* b;
  T* y;
  T scale;
  int center;
  ActivationFn activation;
};
template <typename T>
Int8SplitProduct int8_split_linear(const Int8SplitLinear<T>& product);

// Updates w[out, in] by SGD with the gradient scale * dz^T . x; momentum is [out, in] or null
template <typename T>
struct Int8SplitGradW {
  int n, in, out;
  const uint8_t* x_transposed;
  const int8_t* dz_digits;
  const T* dz_up;
  const int* dz_sums;
  T *w, *momentum;
  T scale;
  int center;
  SgdSettings sgd;
  bool early;  // the launch just before writes neither factor
};
template <typename T>
Int8SplitProduct int8_split_grad_w(const Int8SplitGradW<T>& product);

}  // namespace ridgeline::cuda
