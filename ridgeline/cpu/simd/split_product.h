#pragma once

#include <cstdint>

// Products of fp32 numbers on a unit that multiplies bf16 numbers and adds in fp32 (AMX: sixteen
// times the multiply-adds of AVX-512). A number is the sum of three of bf16, exactly (24 bits are
// three times 8); of the nine products of two such sums the six largest are added up, the smallest
// first. What is left out is below 2^-24 of a product: its rounding in fp32.
//
// Operands come in blocks of 32 x 32, each split once and used often.
namespace ridgeline::cpu::simd {

inline constexpr int64_t kSplitSide = 32;
// Numbers of a block of either operand: three parts of each.
inline constexpr int64_t kSplitBlock = 3 * kSplitSide * kSplitSide;

constexpr int64_t split_blocks(int64_t n) { return (n + kSplitSide - 1) / kSplitSide; }

struct SplitEngine {
  const char* name;  // "amx", "portable"
  // A block of the left operand from a[row * lda + k], rows and depth of which may be less than 32:
  // the rest is zero. [part][half of the rows][16 rows][32 k]
  void (*split_left)(const float* a, int64_t lda, int64_t rows, int64_t depth, uint16_t* block);
  // A block of the right operand from b[k * ldb + column], likewise.
  // [part][half of the columns][16 pairs of k][16 columns][2]
  void (*split_right)(const float* b, int64_t ldb, int64_t depth, int64_t columns, uint16_t* block);
  // Around any number of products on one thread: the tile registers' shape, and its end.
  void (*begin)();
  void (*end)();
  // c[row * ldc + column] = or += the sum over `blocks` pairs of blocks, one after the other; all
  // 32 rows and columns are written.
  void (*multiply)(const uint16_t* a, const uint16_t* b, int64_t blocks, float* c, int64_t ldc,
                   bool add);
};

// Null where the CPU has no such unit.
const SplitEngine* split_engine();

// In fp32, for comparison: six times the work of a plain product.
const SplitEngine& split_portable_engine();

}  // namespace ridgeline::cpu::simd
