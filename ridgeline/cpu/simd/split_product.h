#pragma once

#include <cstdint>

// Products of fp32 numbers on a unit that multiplies bf16 numbers and adds in fp32 (AMX: sixteen
// times the multiply-adds of AVX-512). A number is exactly the sum of three bf16 numbers (24 bits
// are three times 8); of the nine products of two such sums the six largest are added up, the
// smallest first. The omitted ones are below 2^-24 of a product, its rounding in fp32. Infinity is
// its own last part, which is multiplied only by the other's first part: with the others, whose
// signs may differ, it would become NaN.
//
// Operands come in blocks of 32 x 32, each split once and used often. A right operand whose numbers
// are already bf16 (pixels from 0 to 255) needs one part and three products instead of six.
namespace ridgeline::cpu::simd {

inline constexpr int64_t kSplitSide = 32;
// Numbers of one part of a block of either operand, and of all three.
inline constexpr int64_t kSplitPart = kSplitSide * kSplitSide;
inline constexpr int64_t kSplitBlock = 3 * kSplitPart;

constexpr int64_t split_blocks(int64_t n) { return (n + kSplitSide - 1) / kSplitSide; }

struct SplitEngine {
  const char* name;  // "amx", "portable"
  // Splits a block of the left operand from a[row * lda + k]; rows and depth may be less than 32,
  // and the rest is zero. [part][half of the rows][16 rows][16 pairs of k]; each engine has its own
  // pairs.
  void (*split_left)(const float* a, int64_t lda, int64_t rows, int64_t depth, uint16_t* block);
  // Splits a block of the right operand from b[k * ldb + column] in the same way.
  // [part][half of the columns][16 pairs of k][16 columns][2]
  void (*split_right)(const float* b, int64_t ldb, int64_t depth, int64_t columns, uint16_t* block);
  // These two read from a[k * lda + row] and b[column * ldb + k] instead.
  void (*split_left_transposed)(const float* a, int64_t lda, int64_t rows, int64_t depth,
                                uint16_t* block);
  void (*split_right_transposed)(const float* b, int64_t ldb, int64_t depth, int64_t columns,
                                 uint16_t* block);
  // The first part of split_right only, for numbers that are bf16.
  void (*take_right)(const float* b, int64_t ldb, int64_t depth, int64_t columns, uint16_t* block);
  // Called around any number of products on one thread: configures and releases the tile registers.
  void (*begin)();
  void (*end)();
  // c[row * ldc + column] = or += the sum over `blocks` pairs of blocks, one after the other; all
  // 32 rows and columns are written.
  void (*multiply)(const uint16_t* a, const uint16_t* b, int64_t blocks, float* c, int64_t ldc,
                   bool add);
  // Multiplies blocks of b that come from take_right.
  void (*multiply_one_part)(const uint16_t* a, const uint16_t* b, int64_t blocks, float* c,
                            int64_t ldc, bool add);
  // c = c * scale + bias[row] (0 if null), then max with zero if `rectified`: rows of 32 numbers.
  // NaN stays NaN.
  void (*finish)(float* c, int64_t ldc, int64_t rows, float scale, const float* bias,
                 bool rectified);
};

// Returns null if the CPU has no such unit.
const SplitEngine* split_engine();

// Computes in fp32, for comparison: six times the work of a plain product.
const SplitEngine& split_portable_engine();

}  // namespace ridgeline::cpu::simd
