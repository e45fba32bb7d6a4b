#pragma once

#include <cstdint>
#include <initializer_list>

// Neighbouring values that a thread loads and stores in one access.
namespace ridgeline::cuda::recurrent {

// kCount neighbouring values, in one access.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Values {
  T v[kCount];
};

// kCount neighbouring values in the accumulator dtype.
template <int kCount, typename V, typename A>
__device__ inline void load_values(const V* from, A (&to)[kCount]) {
  const auto values = *reinterpret_cast<const Values<V, kCount>*>(from);
#pragma unroll
  for (int e = 0; e < kCount; ++e) to[e] = A(values.v[e]);
}
template <int kCount, typename V, typename A>
__device__ inline void store_values(V* to, const A (&from)[kCount]) {
  Values<V, kCount> values;
#pragma unroll
  for (int e = 0; e < kCount; ++e) values.v[e] = V(from[e]);
  *reinterpret_cast<Values<V, kCount>*>(to) = values;
}
template <int kCount, typename V>
__device__ inline void store_zeros(V* to) {
  *reinterpret_cast<Values<V, kCount>*>(to) = {};
}
// Calls f with the number of values per access: kCount if the alignment of rows of `width` values
// allows it, otherwise one.
template <int kCount, typename F>
void with_values(std::initializer_list<const void*> rows, int width, F f) {
  bool even = width % kCount == 0;
  for (const void* row : rows) even = even && reinterpret_cast<uintptr_t>(row) % 16 == 0;
  if (even) {
    f.template operator()<kCount>();
  } else {
    f.template operator()<1>();
  }
}

}  // namespace ridgeline::cuda::recurrent
