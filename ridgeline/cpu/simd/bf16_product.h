#pragma once

#include <cstdint>

// Products of bf16 numbers, summed in fp32: the tile of convolutions and linear layers in bf16. It
// uses AMX or AVX512-BF16 if the CPU has them, else multiply-adds of fp32.
namespace ridgeline::cpu::simd {

// Columns of a panel of b: [depth / 2][kBf16Panel][2], with pairs of neighbours in depth side by
// side.
inline constexpr int64_t kBf16Panel = 32;
// Depths are multiples of this, the depth of a tile register.
inline constexpr int64_t kBf16Depth = 32;

// c[row, column] = sum over k < depth of a[row * lda + k] * b(k, column) for one panel of b;
// c is [rows][kBf16Panel]. Numbers are bits of bf16.
using Bf16Multiply = void (*)(const uint16_t* a, int64_t lda, int64_t rows, const uint16_t* b,
                              int64_t depth, float* c);

struct Bf16Engine {
  const char* name;  // "amx", "avx512_bf16", "fp32"
  Bf16Multiply multiply;
};

// Returns the fastest engine on this machine. Requests AMX's tile registers if there are any.
const Bf16Engine& bf16_engine();

// Returns the portable engine, for comparison.
const Bf16Engine& bf16_portable_engine();

}  // namespace ridgeline::cpu::simd
