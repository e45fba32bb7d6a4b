#pragma once

// Number types of generated functions and their tensor-core products. NVRTC compiles these headers
// without any include path, so they use only what the compiler itself provides.

namespace ridgeline::generated {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i32 = int;
using i64 = long long;

// std::conditional, because there is no standard library here.
template <bool kFirst, typename A, typename B>
struct std_conditional {
  using type = A;
};
template <typename A, typename B>
struct std_conditional<false, A, B> {
  using type = B;
};

// A pointer that the compiler knows to point to global memory.
template <typename T>
__device__ inline T* global(void* p) {
  return static_cast<T*>(__cvta_global_to_generic(__cvta_generic_to_global(p)));
}
// Returns the same pointer in a form that hides its origin from the compiler, so that values
// derived from it are not computed ahead.
__device__ inline char* fresh(char* p) {
  unsigned long at = __cvta_generic_to_global(p);
  asm volatile("" : "+l"(at));
  return static_cast<char*>(__cvta_global_to_generic(at));
}

struct Bf16 {
  u16 bits;
};
struct Fp16 {
  u16 bits;
};

// The low half is `low`.
__device__ inline u32 pack_bf16(float low, float high) {
  u32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ inline u32 pack_fp16(float low, float high) {
  u32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ inline float widen(Bf16 v) { return __uint_as_float(u32(v.bits) << 16); }
__device__ inline float widen(Fp16 v) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(v.bits));
  return wide;
}
__device__ inline float widen(float v) { return v; }
__device__ inline double widen(double v) { return v; }

template <typename To>
struct Narrow;
template <>
struct Narrow<Bf16> {
  static __device__ Bf16 from(float v) { return {u16(pack_bf16(v, 0.0f))}; }
};
template <>
struct Narrow<Fp16> {
  static __device__ Fp16 from(float v) { return {u16(pack_fp16(v, 0.0f))}; }
};
template <>
struct Narrow<float> {
  static __device__ float from(float v) { return v; }
};
template <>
struct Narrow<double> {
  static __device__ double from(double v) { return v; }
};

// kCount neighbouring values in one access, if they are aligned for it.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T v[kCount];
};

// Rounds to tf32, to nearest with ties away from zero; NaN stays NaN.
__device__ inline float round_tf32(float v) {
  u32 bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
  return __uint_as_float(bits);
}

// A product in one number type. In operands the summed index runs along rows, in chunks of 64
// bytes: lane 4g + t holds 16 bytes, the t-th quarter of a chunk, of row g of each operand. It does
// not matter which summed index the tensor core assigns to a value, as long as both operands agree.
//   Number   the stored type of operands, kChunk of them per chunk
//   Sum      the type of sums
//   Value    the type in which biases, activations and updates are computed
//   operand  converts a value to its stored form for products
//   multiply d += a . b over one of the kParts parts of a chunk: a0 and a1 are rows g and g + 8 of
//            16, b is row g of 8; d has columns 2t and 2t + 1 of rows g (0, 1) and g + 8 (2, 3).
//            kRound: a is not rounded yet. One part of all results comes before the next part of
//            any, so that no product waits for the previous one.
struct Bf16Math {
  using Number = Bf16;
  using Sum = float;
  using Value = float;
  static constexpr int kChunk = 32;
  static __device__ Bf16 operand(float v) { return Narrow<Bf16>::from(v); }
  static constexpr int kParts = 2;
  template <bool kRound, int kPart>
  static __device__ void multiply(float (&d)[4], const uint4& a0, const uint4& a1, const uint4& b) {
    if constexpr (kPart == 0) {
      half_step(d, a0.x, a1.x, a0.y, a1.y, b.x, b.y);
    } else {
      half_step(d, a0.z, a1.z, a0.w, a1.w, b.z, b.w);
    }
  }

 private:
  static __device__ void half_step(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
};

struct Fp16Math {
  using Number = Fp16;
  using Sum = float;
  using Value = float;
  static constexpr int kChunk = 32;
  static __device__ Fp16 operand(float v) { return Narrow<Fp16>::from(v); }
  static constexpr int kParts = 2;
  template <bool kRound, int kPart>
  static __device__ void multiply(float (&d)[4], const uint4& a0, const uint4& a1, const uint4& b) {
    if constexpr (kPart == 0) {
      half_step(d, a0.x, a1.x, a0.y, a1.y, b.x, b.y);
    } else {
      half_step(d, a0.z, a1.z, a0.w, a1.w, b.z, b.w);
    }
  }

 private:
  static __device__ void half_step(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
};

// Weights and activations are rounded when they are stored, gradients when they are used: the bias
// gradients are sums of unrounded fp32 values.
struct Tf32Math {
  using Number = float;
  using Sum = float;
  using Value = float;
  static constexpr int kChunk = 16;
  static __device__ float operand(float v) { return round_tf32(v); }
  static constexpr int kParts = 2;
  template <bool kRound, int kPart>
  static __device__ void multiply(float (&d)[4], const uint4& a0, const uint4& a1, const uint4& b) {
    if constexpr (kPart == 0) {
      half_step<kRound>(d, a0.x, a1.x, a0.y, a1.y, b.x, b.y);
    } else {
      half_step<kRound>(d, a0.z, a1.z, a0.w, a1.w, b.z, b.w);
    }
  }

 private:
  template <bool kRound>
  static __device__ u32 rounded(u32 v) {
    return kRound ? __float_as_uint(round_tf32(__uint_as_float(v))) : v;
  }
  template <bool kRound>
  static __device__ void half_step(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(rounded<kRound>(a0)), "r"(rounded<kRound>(a1)), "r"(rounded<kRound>(a2)),
          "r"(rounded<kRound>(a3)), "r"(b0), "r"(b1));
  }
};

// fp32 by the fp64 tensor cores: every product is exact, and sums are rounded to fp32 once per
// warp.
struct Fp32Math {
  using Number = float;
  using Sum = double;
  using Value = float;
  static constexpr int kChunk = 16;
  static __device__ float operand(float v) { return v; }
  static constexpr int kParts = 1;
  template <bool kRound, int kPart>
  static __device__ void multiply(double (&d)[4], const uint4& a0, const uint4& a1,
                                  const uint4& b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, "
        "{%4,%5,%6,%7,%8,%9,%10,%11}, "
        "{%12,%13,%14,%15}, {%0,%1,%2,%3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : "d"(wide(a0.x)), "d"(wide(a1.x)), "d"(wide(a0.y)), "d"(wide(a1.y)), "d"(wide(a0.z)),
          "d"(wide(a1.z)), "d"(wide(a0.w)), "d"(wide(a1.w)), "d"(wide(b.x)), "d"(wide(b.y)),
          "d"(wide(b.z)), "d"(wide(b.w)));
  }

 private:
  static __device__ double wide(u32 v) { return double(__uint_as_float(v)); }
};

struct Fp64Math {
  using Number = double;
  using Sum = double;
  using Value = double;
  static constexpr int kChunk = 8;
  static __device__ double operand(double v) { return v; }
  static constexpr int kParts = 1;
  template <bool kRound, int kPart>
  static __device__ void multiply(double (&d)[4], const uint4& a0, const uint4& a1,
                                  const uint4& b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
        : "d"(wide(a0.x, a0.y)), "d"(wide(a1.x, a1.y)), "d"(wide(a0.z, a0.w)),
          "d"(wide(a1.z, a1.w)), "d"(wide(b.x, b.y)), "d"(wide(b.z, b.w)));
  }

 private:
  static __device__ double wide(u32 low, u32 high) { return __hiloint2double(int(high), int(low)); }
};

// d += a . b for kMt x kNt units over a chunk, in the layout in which lanes hold them.
template <typename Math, bool kRound, int kMt, int kNt>
__device__ inline void multiply_units(typename Math::Sum (&d)[kMt][2 * kNt][4],
                                      const uint4 (&a)[kMt][2], const uint4 (&b)[kNt][2]) {
#pragma unroll
  for (int m = 0; m < kMt; ++m) {
#pragma unroll
    for (int n = 0; n < 2 * kNt; ++n)
      Math::template multiply<kRound, 0>(d[m][n], a[m][0], a[m][1], b[n >> 1][n & 1]);
  }
  if constexpr (Math::kParts == 2) {
#pragma unroll
    for (int m = 0; m < kMt; ++m) {
#pragma unroll
      for (int n = 0; n < 2 * kNt; ++n)
        Math::template multiply<kRound, 1>(d[m][n], a[m][0], a[m][1], b[n >> 1][n & 1]);
    }
  }
}

}  // namespace ridgeline::generated
