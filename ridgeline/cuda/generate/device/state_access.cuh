#pragma once

// How updates load and store weights and their states.

#include "ridgeline/cuda/generate/device/layers.cuh"

namespace ridgeline::generated {

// Access to states that do not all fit into the L2 cache and would evict each other before they are
// used again: kLeaving percent of them leave the cache first, and the others stay.
template <int kLeaving>
struct StateAccess {
  u64 policy;

  __device__ StateAccess() {
    if constexpr (kLeaving > 0) {
      asm("createpolicy.fractional.L2::evict_first.b64 %0, %1;"
          : "=l"(policy)
          : "f"(float(kLeaving) / 100.0f));
    }
  }
  template <typename T>
  static constexpr bool kPlain = kLeaving == 0 || sizeof(T) != 4;
  template <typename T>
  __device__ void load(const T* at, decltype(widen(T{})) (&v)[4]) const {
    if constexpr (kPlain<T>) {
      load_four(at, v);
    } else {
      asm volatile("ld.global.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
                   : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
                   : "l"(__cvta_generic_to_global(at)), "l"(policy)
                   : "memory");
    }
  }
  template <typename T>
  __device__ void store(T* at, const T (&n)[4]) const {
    if constexpr (kPlain<T>) {
      store_four(at, n);
    } else {
      asm volatile("st.global.L2::cache_hint.v4.f32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(
                       __cvta_generic_to_global(at)),
                   "f"(n[0]), "f"(n[1]), "f"(n[2]), "f"(n[3]), "l"(policy)
                   : "memory");
    }
  }
};

}  // namespace ridgeline::generated
