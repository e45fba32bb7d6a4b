#pragma once

#include <cstddef>
#include <cstdint>

namespace ridgeline::prof {

// Loops that only keep one unit of a core busy, at the widest SIMD level of the machine.

// Makes `rounds` rounds of multiply-adds on independent registers; returns the flops of a round.
// `sink` takes the result, so that the work is not optimised away.
double fma_rounds_fp32(int64_t rounds, float* sink);
double fma_rounds_fp64(int64_t rounds, double* sink);
// Uses the bf16 unit (core/bf16_unit.h); does nothing and returns 0 if there is none.
double bf16_rounds(int64_t rounds, float* sink);

// to[0..bytes) = from[0..bytes) with ordinary stores; bytes is a multiple of 256, both aligned
// to 64.
void copy_bytes(std::byte* to, const std::byte* from, size_t bytes);

// The level in use: "AVX3", "AVX2", "NEON".
const char* simd_level();

}  // namespace ridgeline::prof
