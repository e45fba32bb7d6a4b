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

  size_t size() const { return size_t(sides * depth * kSplitBlock); }
  uint16_t* at(int64_t side, int64_t k) const { return blocks + (side * depth + k) * kSplitBlock; }

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
};

// c = bias + left . right. Element (row, column) of block (i, j) of c lies at
// c[i * row_step + j * column_step + row * ldc + column]; only the rows and columns there are get
// written.
struct SplitProductArgs {
  SplitMatrix left, right;
  float* c;
  int64_t row_step, column_step, ldc;
  int64_t rows, columns;        // of c
  const float* bias = nullptr;  // [rows]; may be null
  bool add = false;             // to what c holds
};

// The blocks of a range of rows and columns (in blocks), between begin() and end() of the engine.
void split_multiply(const SplitProductArgs& args, Range rows, Range columns);

// These compute the product in tasks, which threads share.
int64_t split_tasks(const SplitProductArgs& args);
void split_multiply_task(const SplitProductArgs& args, int64_t task);

}  // namespace ridgeline::cpu::simd
