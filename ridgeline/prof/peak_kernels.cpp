#include "ridgeline/prof/peak_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ridgeline/prof/peak_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ridgeline::prof {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Twelve chains: two units with a latency of four or five need eight to ten, and sixteen registers
// hold twelve beside the two factors.
constexpr int kChains = 12;

template <typename T>
double fma_rounds(int64_t rounds, T* sink) {
  const hn::ScalableTag<T> d;
  // Converges to 1, so that no denormal or infinity occurs.
  const auto factor = hn::Set(d, T(0.5));
  const auto term = hn::Set(d, T(0.5));
  auto a0 = hn::Iota(d, T(0)), a1 = hn::Iota(d, T(1)), a2 = hn::Iota(d, T(2));
  auto a3 = hn::Iota(d, T(3)), a4 = hn::Iota(d, T(4)), a5 = hn::Iota(d, T(5));
  auto a6 = hn::Iota(d, T(6)), a7 = hn::Iota(d, T(7)), a8 = hn::Iota(d, T(8));
  auto a9 = hn::Iota(d, T(9)), a10 = hn::Iota(d, T(10)), a11 = hn::Iota(d, T(11));
  for (int64_t i = 0; i < rounds; ++i) {
    a0 = hn::MulAdd(a0, factor, term);
    a1 = hn::MulAdd(a1, factor, term);
    a2 = hn::MulAdd(a2, factor, term);
    a3 = hn::MulAdd(a3, factor, term);
    a4 = hn::MulAdd(a4, factor, term);
    a5 = hn::MulAdd(a5, factor, term);
    a6 = hn::MulAdd(a6, factor, term);
    a7 = hn::MulAdd(a7, factor, term);
    a8 = hn::MulAdd(a8, factor, term);
    a9 = hn::MulAdd(a9, factor, term);
    a10 = hn::MulAdd(a10, factor, term);
    a11 = hn::MulAdd(a11, factor, term);
  }
  const auto low = hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Add(a4, a5));
  const auto high = hn::Add(hn::Add(hn::Add(a6, a7), hn::Add(a8, a9)), hn::Add(a10, a11));
  *sink = hn::GetLane(hn::Add(low, high));
  return 2.0 * kChains * double(hn::Lanes(d));
}

double fma_fp32(int64_t rounds, float* sink) { return fma_rounds<float>(rounds, sink); }
double fma_fp64(int64_t rounds, double* sink) { return fma_rounds<double>(rounds, sink); }

void copy_loop(std::byte* to, const std::byte* from, size_t bytes) {
  const hn::ScalableTag<uint8_t> d;
  const size_t step = hn::Lanes(d);
  const auto* in = reinterpret_cast<const uint8_t*>(from);
  auto* out = reinterpret_cast<uint8_t*>(to);
  for (size_t i = 0; i < bytes; i += 4 * step) {
    const auto v0 = hn::Load(d, in + i);
    const auto v1 = hn::Load(d, in + i + step);
    const auto v2 = hn::Load(d, in + i + 2 * step);
    const auto v3 = hn::Load(d, in + i + 3 * step);
    hn::Store(v0, d, out + i);
    hn::Store(v1, d, out + i + step);
    hn::Store(v2, d, out + i + 2 * step);
    hn::Store(v3, d, out + i + 3 * step);
  }
}

const char* level() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace ridgeline::prof
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::prof {

HWY_EXPORT(fma_fp32);
HWY_EXPORT(fma_fp64);
HWY_EXPORT(copy_loop);
HWY_EXPORT(level);

double fma_rounds_fp32(int64_t rounds, float* sink) {
  return HWY_DYNAMIC_DISPATCH(fma_fp32)(rounds, sink);
}
double fma_rounds_fp64(int64_t rounds, double* sink) {
  return HWY_DYNAMIC_DISPATCH(fma_fp64)(rounds, sink);
}
void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  HWY_DYNAMIC_DISPATCH(copy_loop)(to, from, bytes);
}
const char* simd_level() { return HWY_DYNAMIC_DISPATCH(level)(); }

}  // namespace ridgeline::prof
#endif
