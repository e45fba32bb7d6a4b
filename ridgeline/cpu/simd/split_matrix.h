#pragma once

#include <cstdint>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/cpu/simd/split_product.h"

// Matrices as blocks of split_product.h, and their products.
namespace ridgeline::cpu::simd {

// An operand: `sides` blocks of rows (left) or columns (right), each `depth` blocks long, one after
// the other: block (side, k) at (side * depth + k) * kSplitBlock.
struct SplitMatrix {
  const SplitEngine* engine = nullptr;
  int64_t sides = 0, depth = 0;  // in blocks
  uint16_t* blocks = nullptr;
  bool one_part = false;  // a right operand of bf16 numbers

  int64_t block() const { return one_part ? kSplitPart : kSplitBlock; }
  size_t size() const { return size_t(sides * depth * block()); }
  uint16_t* at(int64_t side, int64_t k) const { return blocks + (side * depth + k) * block(); }

  // Splits the sides `range` of a[rows, depth], rows lda apart, as the left operand.
  void take_left(const float* a, int64_t lda, int64_t rows, int64_t depth, Range range) const;
  // Splits sides of the transpose of a[depth, rows], rows of a lda apart, as the left operand:
  // `count` blocks along the depth from block `first` on.
  void take_left_transposed(const float* a, int64_t lda, int64_t rows, int64_t depth, Range range,
                            int64_t first, int64_t count) const;
  // Splits sides of b[depth, columns], its rows ldb apart, as the right operand.
  void take_right(const float* b, int64_t ldb, int64_t depth, int64_t columns, Range range) const;
  // Splits a panel [depth][kSplitSide] as side j of the right operand.
  void take_panel(const float* panel, int64_t depth, int64_t j) const;
  // Splits one block from b[k * ldb + column] as the right operand; some elements may be missing.
  void take_right_block(const float* b, int64_t ldb, int64_t depth, int64_t columns, int64_t side,
                        int64_t k) const;
};

// c = bias + scale * left . right. Element (row, column) of block (i, j) of c is at
// c[i * row_step + j * column_step + row * ldc + column]; only existing rows and columns are
// written.
struct SplitProductArgs {
  SplitMatrix left, right;
  float* c;
  int64_t row_step, column_step, ldc;
  int64_t rows, columns;        // of c
  const float* bias = nullptr;  // [rows]; may be null
  bool add = false;             // adds to c, without the epilogue
  float scale = 1;
  bool rectified = false;  // negative results become zero (ReLU)
};

// Computes the blocks of a range of rows and columns (in blocks), between begin() and end() of the
// engine.
void split_multiply(const SplitProductArgs& args, Range rows, Range columns);

// These compute the product in tasks, which threads divide.
int64_t split_tasks(const SplitProductArgs& args);
void split_multiply_task(const SplitProductArgs& args, int64_t task);

}  // namespace ridgeline::cpu::simd
