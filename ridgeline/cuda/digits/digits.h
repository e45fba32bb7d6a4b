#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <type_traits>

#include "ridgeline/cuda/plain/curve.h"
#include "ridgeline/cuda/plain/gather.h"
#include "ridgeline/cuda/plain/sgd.h"
#include "ridgeline/cuda/tile/bits.h"

// Products of a first layer whose inputs are scale * (byte - center), in fp32 and fp64 by the byte
// products of tensor cores, whose sums are exact. The other factor is written as a whole number of
// `up`, a power of two chosen for each output so that its largest factor has 8 * digits - 2 bits;
// and that number in digits of base 256 from -128 to 127. Each digit's products are added up in
// 32-bit integers, the digits' sums put together exactly, and what comes out is rounded once. So
// the only error of a sum is that of its factors: at most 2^-30 (fp32) or 2^-54 (fp64) of the
// output's largest factor. An fp32 factor of 1/64 of the largest or more has none.
//
// Sums over bytes become sums over bytes less center by the sums of the digits alone.
// Digits lie as the product reads them, 32 outputs a group:
//   w  [group][digit][32][in]    dz [group][digit][32][n]      (digit 0 the lowest; pitches below)
namespace ridgeline::cuda {

constexpr int kDigitGroup = 32;
// Sums of so many products of a byte and a digit fit in 32 bits.
constexpr int64_t kDigitMostTerms = 65536;

template <typename T>
constexpr int kDigits = std::is_same_v<T, double> ? 7 : 4;

// Pitches of bytes, in the matrices x [n][in], its transpose [in][n], and the digits.
constexpr int64_t digit_pitch(int64_t count) { return (count + 127) / 128 * 128; }
constexpr int64_t digit_rows(int64_t outputs, int digits) {
  return (outputs + kDigitGroup - 1) / kDigitGroup * kDigitGroup * digits;
}

// A step's learning rate, for kernels that run when the tick has moved on.
struct DigitRate {
  double lr;
  int32_t tick;  // 0
};

// Gathers the bytes and labels of a step, straight and transposed, takes w apart, keeps the step's
// learning rate, and sets `most` and `dz_sums` to 0.
template <typename T>
struct DigitPrepare {
  GatherArgs gather;  // y, scale and shift are not used
  const T* w;         // [out, in]
  uint8_t *x, *x_transposed;
  int8_t* w_digits;
  T* w_up;                // [out]
  int *w_sums, *dz_sums;  // [digit_rows]: sums of digits over inputs; over samples
  Bits<T>* most;          // [out]
  const double* lr;       // [repeats]
  DigitRate* rate;
  int in, out;
};
template <typename T>
cudaError_t launch_digit_prepare(const DigitPrepare<T>& args, cudaStream_t stream);

// Takes dz [n, out] apart; most: the largest |dz| of each output. Adds to `sums` where there are.
template <typename T>
struct DigitSplit {
  const T* dz;
  const Bits<T>* most;
  int8_t* digits;
  T* up;      // [out]
  int* sums;  // [digit_rows] or null
  int n, out;
};
template <typename T>
cudaError_t launch_digit_split(const DigitSplit<T>& args, cudaStream_t stream);

using DigitProduct = std::function<cudaError_t(cudaStream_t)>;

// y[n, out] = f(scale * x . w^T + b)
template <typename T>
struct DigitLinear {
  int n, in, out;
  const uint8_t* x;
  const int8_t* w_digits;
  const T* w_up;
  const int* w_sums;
  const T* b;
  T* y;
  T scale;
  int center;
  Curve curve;
};
template <typename T>
DigitProduct digit_linear(const DigitLinear<T>& product);

// w[out, in] by SGD with the gradient scale * dz^T . x; momentum [out, in] or null
template <typename T>
struct DigitGradW {
  int n, in, out;
  const uint8_t* x_transposed;
  const int8_t* dz_digits;
  const T* dz_up;
  const int* dz_sums;
  T *w, *momentum;
  T scale;
  int center;
  SgdSettings sgd;
  bool early;  // the kernel launched just before writes neither factor
};
template <typename T>
DigitProduct digit_grad_w(const DigitGradW<T>& product);

}  // namespace ridgeline::cuda
