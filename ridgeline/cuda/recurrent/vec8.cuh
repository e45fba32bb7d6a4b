#pragma once

#include <cstdint>

// Vectors of eight neighbouring values of a row, which a thread loads at once.
namespace ridgeline::cuda::recurrent {

// Eight values in their stored type.
template <typename T>
struct alignas(16) Vec8 {
  T v[8];
};

// Loads past the end of a row read these zeros instead, which needs no branch.
static __device__ const uint4 kZeros[2] = {};

// Loads a vec8 of a row of `count` values, with zeros past the end. If rows have whole vec8s only
// (kEven), this is one access without a branch, so that a thread can have many loads in flight.
template <bool kEven, typename T>
__device__ inline Vec8<T> vec8_of_row(const T* row, int vec8, int count) {
  Vec8<T> values{};
  if constexpr (kEven) {
    const bool has = row != nullptr && 8 * vec8 < count;
    const auto* from = has ? reinterpret_cast<const uint4*>(row + 8 * vec8) : kZeros;
    uint4* to = reinterpret_cast<uint4*>(&values);
#pragma unroll
    for (int i = 0; i < int(sizeof(values) / 16); ++i) to[i] = from[i];
  } else if (row != nullptr) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (8 * vec8 + e < count) values.v[e] = row[8 * vec8 + e];
    }
  }
  return values;
}

// Calls f<kEven>, where kEven says whether rows of `count` values at `rows` have whole vec8s only.
template <typename F>
__device__ inline void with_evenness(int count, const void* rows, const F& f) {
  if (count % 8 == 0 && reinterpret_cast<uintptr_t>(rows) % 16 == 0) {
    f.template operator()<true>();
  } else {
    f.template operator()<false>();
  }
}

// Loads eight values of a row of `count`, with zeros past its end, in 16-byte accesses if aligned.
template <typename T>
__device__ inline void load_vec8(const T* row, int vec8, int count, float (&v)[8]) {
  const T* at = row + 8 * vec8;
  if (sizeof(T) == 2 && 8 * vec8 + 8 <= count && reinterpret_cast<uintptr_t>(at) % 16 == 0) {
    const uint4 words = *reinterpret_cast<const uint4*>(at);
    const T* values = reinterpret_cast<const T*>(&words);
#pragma unroll
    for (int e = 0; e < 8; ++e) v[e] = float(values[e]);
    return;
  }
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    if (8 * vec8 + e < count) v[e] = float(at[e]);
  }
}

}  // namespace ridgeline::cuda::recurrent
