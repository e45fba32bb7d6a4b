#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace ridgeline::cuda {

// 16 bytes of channels, the unit that one thread moves.
template <typename T>
constexpr int kPacked = 16 / int{sizeof(T)};

template <typename T>
__device__ inline void unpack(uint4 packed, float (&to)[kPacked<T>]) {
  const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 4) {
      to[i] = __uint_as_float(words[i]);
    } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
      to[2 * i] = __uint_as_float(words[i] << 16);
      to[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    } else {
      const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&words[i]));
      to[2 * i] = pair.x;
      to[2 * i + 1] = pair.y;
    }
  }
}

template <typename T>
__device__ inline uint4 pack(const float (&from)[kPacked<T>]) {
  uint4 packed;
  T* to = reinterpret_cast<T*>(&packed);
#pragma unroll
  for (int i = 0; i < kPacked<T>; ++i) to[i] = T(from[i]);
  return packed;
}

}  // namespace ridgeline::cuda
