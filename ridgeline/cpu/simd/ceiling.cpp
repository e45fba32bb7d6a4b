#include "ridgeline/cpu/simd/ceiling.h"

#include <algorithm>
#include <chrono>

#define HWY_DISABLED_TARGETS HWY_SSSE3
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/cpu/simd/ceiling.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Independent chains: more than latency x units of any machine (5 x 2), fewer than 16 registers.
constexpr int kChains = 12;

// Runs `rounds` of kChains multiply-adds; returns the operations made. The sum keeps the compiler
// from dropping them.
template <typename T>
double multiply_add(int64_t rounds, T* sum) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const V factor = hn::Set(d, T(0.999)), term = hn::Set(d, T(1e-3));
  V acc[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) acc[i] = hn::Set(d, *sum + T(i));
  for (int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) acc[i] = hn::MulAdd(acc[i], factor, term);
  }
#pragma GCC unroll 16
  for (int i = 1; i < kChains; ++i) acc[0] = hn::Add(acc[0], acc[i]);
  *sum = hn::GetLane(acc[0]);
  return 2.0 * double(rounds) * kChains * double(hn::Lanes(d));
}

double multiply_add_float(int64_t rounds, float* sum) { return multiply_add(rounds, sum); }
double multiply_add_double(int64_t rounds, double* sum) { return multiply_add(rounds, sum); }

}  // namespace ridgeline::cpu::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu::simd {
namespace {

HWY_EXPORT(multiply_add_float);
HWY_EXPORT(multiply_add_double);

template <typename T, typename F>
double measure(ThreadPool& pool, F run) {
  constexpr int kRepeats = 8;
  constexpr int64_t kRounds = 500'000;  // about 2 ms at one round in 12 to 24 cycles
  std::vector<double> flops(size_t(pool.size()));
  double best = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    pool.run([&](int thread) {
      volatile T seed = 0;
      T sum = seed;
      flops[size_t(thread)] = run(kRounds, &sum);
      seed = sum;
    });
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    double total = 0;
    for (const double each : flops) total += each;
    best = std::max(best, total / seconds);
  }
  return best;
}

}  // namespace

template <>
double fma_ceiling<float>(ThreadPool& pool) {
  return measure<float>(pool, HWY_DYNAMIC_DISPATCH(multiply_add_float));
}
template <>
double fma_ceiling<double>(ThreadPool& pool) {
  return measure<double>(pool, HWY_DYNAMIC_DISPATCH(multiply_add_double));
}

}  // namespace ridgeline::cpu::simd
#endif  // HWY_ONCE
