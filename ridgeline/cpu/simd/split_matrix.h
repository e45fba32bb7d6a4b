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

  // As the left operand: the sides `range` of a[rows, depth] with rows lda apart.
  void take_left(const float* a, int64_t lda, int64_t rows, int64_t depth, Range range) const;
  // As the left operand: sides of the transpose of a[depth, rows], rows of a lda apart, to `count`
  // blocks along the depth from block `first` on.
  void take_left_transposed(const float* a, int64_t lda, int64_t rows, int64_t depth, Range range,
                            int64_t first, int64_t count) const;
  // As the right operand: sides of b[depth, columns], its rows ldb apart.
  void take_right(const float* b, int64_t ldb, int64_t depth, int64_t columns, Range range) const;
  // As the right operand: side j of a panel [depth][kSplitSide].
  void take_panel(const float* panel, int64_t depth, int64_t j) const;
  // As the right operand: one block from b[k * ldb + column], some of which may not be there.
  void take_right_block(const float* b, int64_t ldb, int64_t depth, int64_t columns, int64_t side,
                        int64_t k) const;
};

// c = bias + scale * left . right. Element (row, column) of block (i, j) of c lies at
// c[i * row_step + j * column_step + row * ldc + column]; only the rows and columns there are get
// written.
struct SplitProductArgs {
  SplitMatrix left, right;
  float* c;
  int64_t row_step, column_step, ldc;
  int64_t rows, columns;        // of c
  const float* bias = nullptr;  // [rows]; may be null
  bool add = false;             // to what c holds; without what follows
  float scale = 1;
  bool rectified = false;  // negative numbers of the result become zero
};

// The blocks of a range of rows and columns (in blocks), between begin() and end() of the engine.
void split_multiply(const SplitProductArgs& args, Range rows, Range columns);

// These compute the product in tasks, which threads share.
int64_t split_tasks(const SplitProductArgs& args);
void split_multiply_task(const SplitProductArgs& args, int64_t task);

}  // namespace ridgeline::cpu::simd
