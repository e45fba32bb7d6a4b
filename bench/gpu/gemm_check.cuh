#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "ridgeline/cuda/gemm/gemm.h"

// Compares every variant with sums in double precision from the same inputs, element by element.
namespace ridgeline::bench {

using cuda::GemmProblem;
using cuda::Major;

#define BENCH_CUDA(call)                                                                         \
  do {                                                                                           \
    const cudaError_t bench_error = (call);                                                      \
    if (bench_error != cudaSuccess) {                                                            \
      std::printf("%s:%d %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(bench_error)); \
      std::exit(1);                                                                              \
    }                                                                                            \
  } while (0)

// Device memory that is freed at the end of its scope.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(int64_t count) : count_(count) {
    BENCH_CUDA(cudaMalloc(&data_, std::max<int64_t>(1, count) * sizeof(T)));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* get() const { return data_; }
  int64_t count() const { return count_; }
  void poison() { BENCH_CUDA(cudaMemset(data_, 0xff, count_ * sizeof(T))); }  // NaN in every type
  void zero() { BENCH_CUDA(cudaMemset(data_, 0, count_ * sizeof(T))); }

 private:
  T* data_ = nullptr;
  int64_t count_;
};

__device__ inline uint32_t hash(uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 27)) * 0xbf58476d1ce4e5b9ull;
  return uint32_t(x >> 32);
}
// Uniform in [-1, 1).
template <typename T>
__global__ void fill_kernel(T* data, int64_t count, uint64_t seed) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= count) return;
  const uint32_t h = hash(seed * 0x100000001b3ull + i);
  data[i] = T(float(h >> 8) * 0x1p-23f - 1.0f);
}
template <typename T>
void fill(const DeviceArray<T>& array, uint64_t seed) {
  fill_kernel<<<unsigned((array.count() + 255) / 256), 256>>>(array.get(), array.count(), seed);
  BENCH_CUDA(cudaGetLastError());
}

// sum[i, j] and the sum of magnitudes, for rows i of D (all, or every stride-th).
template <typename T>
__global__ void reference_kernel(GemmProblem p, double* sum, double* magnitude, int row_step) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y;
  const int64_t i = int64_t{r} * row_step;
  if (j >= p.n || i >= p.m) return;
  const T* a = static_cast<const T*>(p.a);
  const T* b = static_cast<const T*>(p.b);
  double s = 0, g = 0;
  for (int64_t k = 0; k < p.k; ++k) {
    const double x = float(p.a_major == Major::k ? a[i * p.lda + k] : a[k * p.lda + i]);
    const double y = float(p.b_major == Major::k ? b[j * p.ldb + k] : b[k * p.ldb + j]);
    s += x * y;
    g += fabs(x * y);
  }
  sum[int64_t{r} * p.n + j] = s;
  magnitude[int64_t{r} * p.n + j] = g;
}

template <typename Out>
constexpr double unit_roundoff() {
  if constexpr (std::is_same_v<Out, __nv_bfloat16>) return 0x1p-8;
  if constexpr (std::is_same_v<Out, __half>) return 0x1p-11;
  return 0x1p-24;
}

// worst[0]: the largest error divided by its bound, as the bits of a float (errors are not
// negative, so bits are ordered like values; NaN is above all). worst[1]: how many of D's padding
// elements no longer hold the poison. `Finish` maps an exact sum to D's exact value and scales the
// bound. product_error: the relative error of a product from rounding its factors to tf32.
template <typename Out, typename Finish>
__global__ void compare_kernel(GemmProblem p, const double* sum, const double* magnitude,
                               int row_step, double product_error, double roundoff, Finish finish,
                               unsigned* worst) {
  const int j = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y;
  const int64_t i = int64_t{r} * row_step;
  if (i >= p.m || j >= p.ldd) return;
  const Out got = static_cast<const Out*>(p.d)[i * p.ldd + j];
  if (j >= p.n) {
    const unsigned char* bytes = reinterpret_cast<const unsigned char*>(&got);
    for (unsigned b = 0; b < sizeof(Out); ++b) {
      if (bytes[b] != 0xff) atomicAdd(&worst[1], 1u);
    }
    return;
  }
  const double exact = sum[int64_t{r} * p.n + j];
  double bound = ((p.k + 2) * 0x1p-24 + product_error) * magnitude[int64_t{r} * p.n + j];
  const double want = finish(int(i), j, exact, bound);
  bound += roundoff * (fabs(want) + bound) + 0x1p-25;
  const float ratio = float(fabs(double(float(got)) - want) / bound);
  atomicMax(&worst[0], __float_as_uint(ratio) & 0x7fffffffu);
}

// How many bytes of two arrays differ.
__global__ void differ_kernel(const unsigned char* x, const unsigned char* y, int64_t bytes,
                              unsigned* differences) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < bytes && x[i] != y[i]) atomicAdd(differences, 1u);
}

struct Tally {
  std::string only;  // variants whose names contain this
  int checks = 0, failures = 0;
  double worst = 0;
};

struct CheckShape {
  int m, n, k;
  bool padded;  // pitches are rounded up to 16 bytes and more, so that TMA accepts them
};

inline int64_t pitch_for(int length, bool padded) {
  return padded ? (int64_t{length} + 7) / 8 * 8 + 8 : length;
}

// Memory and reference of one problem.
template <typename In, typename Out>
struct CheckCase {
  CheckCase(CheckShape s, Major a_major, Major b_major, uint64_t seed)
      : lda(pitch_for(a_major == Major::k ? s.k : s.m, s.padded)),
        ldb(pitch_for(b_major == Major::k ? s.k : s.n, s.padded)),
        ldd(pitch_for(s.n, s.padded)),
        row_step(std::max(1, s.m / 256)),
        rows((s.m + row_step - 1) / row_step),
        a((a_major == Major::k ? s.m : s.k) * lda),
        b((b_major == Major::k ? s.n : s.k) * ldb),
        d(s.m * ldd),
        again(s.m * ldd),
        sum(int64_t{rows} * s.n),
        magnitude(int64_t{rows} * s.n),
        worst(3) {
    problem = {s.m, s.n, s.k, a.get(), lda, a_major, b.get(), ldb, b_major, d.get(), ldd};
    fill(a, seed);
    fill(b, seed + 1);
    reference_kernel<In>
        <<<dim3((s.n + 63) / 64, rows), 64>>>(problem, sum.get(), magnitude.get(), row_step);
    BENCH_CUDA(cudaGetLastError());
  }

  template <typename Finish>
  bool compare(const Finish& finish, const char* what, Tally& tally) {
    unsigned got[3];
    BENCH_CUDA(cudaMemset(worst.get(), 0, 12));
    compare_kernel<Out><<<dim3(unsigned(ldd + 63) / 64, rows), 64>>>(
        problem, sum.get(), magnitude.get(), row_step,
        std::is_same_v<In, float> ? 0x1p-10 + 0x1p-22 : 0.0,  // two factors, rounded to 11 bits
        unit_roundoff<Out>(), finish, worst.get());
    BENCH_CUDA(cudaGetLastError());
    const int64_t bytes = d.count() * sizeof(Out);
    differ_kernel<<<unsigned((bytes + 255) / 256), 256>>>(
        reinterpret_cast<const unsigned char*>(d.get()),
        reinterpret_cast<const unsigned char*>(again.get()), bytes, worst.get() + 2);
    BENCH_CUDA(cudaGetLastError());
    BENCH_CUDA(cudaMemcpy(got, worst.get(), 12, cudaMemcpyDeviceToHost));
    float ratio;
    std::memcpy(&ratio, got, 4);
    ++tally.checks;
    if (ratio <= 1.0f) tally.worst = std::max(tally.worst, double(ratio));
    if (ratio <= 1.0f && got[1] == 0 && got[2] == 0) return true;
    ++tally.failures;
    if (tally.failures <= 60) {
      std::printf(
          "FAIL %s %d x %d x %d pitches %ld %ld %ld majors %d %d: error/bound %g, padding "
          "written %u, not repeatable %u\n",
          what, problem.m, problem.n, problem.k, long(lda), long(ldb), long(ldd),
          int(problem.a_major), int(problem.b_major), ratio, got[1], got[2]);
    }
    return false;
  }

  int64_t lda, ldb, ldd;
  int row_step, rows;
  DeviceArray<In> a, b;
  DeviceArray<Out> d, again;
  DeviceArray<double> sum, magnitude;
  DeviceArray<unsigned> worst;
  GemmProblem problem;
};

}  // namespace ridgeline::bench
