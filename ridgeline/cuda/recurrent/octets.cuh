#pragma once

#include <cstdint>

// Eight neighbouring values of a row, which a thread loads at once.
namespace ridgeline::cuda::recurrent {

// As they lie.
template <typename T>
struct alignas(16) Octet {
  T v[8];
};

// Where what is not there is read, so that reading it is no branch.
static __device__ const uint4 kZeros[2] = {};

// An octet of a row of `count` values, zeros where there are none. Of whole octets (kEven) in one
// access, without a branch, so that a thread has many on their way at once.
template <bool kEven, typename T>
__device__ inline Octet<T> octet_of_row(const T* row, int octet, int count) {
  Octet<T> values{};
  if constexpr (kEven) {
    const bool has = row != nullptr && 8 * octet < count;
    const auto* from = has ? reinterpret_cast<const uint4*>(row + 8 * octet) : kZeros;
    uint4* to = reinterpret_cast<uint4*>(&values);
#pragma unroll
    for (int i = 0; i < int(sizeof(values) / 16); ++i) to[i] = from[i];
  } else if (row != nullptr) {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (8 * octet + e < count) values.v[e] = row[8 * octet + e];
    }
  }
  return values;
}
// Calls f with whether rows of `count` values, from `rows` on, have whole octets only.
template <typename F>
__device__ inline void with_evenness(int count, const void* rows, const F& f) {
  if (count % 8 == 0 && reinterpret_cast<uintptr_t>(rows) % 16 == 0) {
    f.template operator()<true>();
  } else {
    f.template operator()<false>();
  }
}

// Eight values of a row of `count`, those there are; 16 bytes at once where they lie so.
template <typename T>
__device__ inline void load_octet(const T* row, int octet, int count, float (&v)[8]) {
  const T* at = row + 8 * octet;
  if (sizeof(T) == 2 && 8 * octet + 8 <= count && reinterpret_cast<uintptr_t>(at) % 16 == 0) {
    const uint4 words = *reinterpret_cast<const uint4*>(at);
    const T* values = reinterpret_cast<const T*>(&words);
#pragma unroll
    for (int e = 0; e < 8; ++e) v[e] = float(values[e]);
    return;
  }
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    if (8 * octet + e < count) v[e] = float(at[e]);
  }
}

}  // namespace ridgeline::cuda::recurrent
