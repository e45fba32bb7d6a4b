#include "ridgeline/cpu/simd/split_matrix.h"

#include <algorithm>

namespace ridgeline::cpu::simd {
namespace {

// kResident: blocks of the right operand that stay in the second-level cache (two threads of a core
// share 2 MiB) during the loop over those of the left. kDepth: the most of them along the depth;
// sums pass through memory once per so many blocks.
constexpr int64_t kResident = 96, kDepth = 16;

int64_t part(int64_t whole, int64_t block) {
  return std::min(kSplitSide, whole - block * kSplitSide);
}

int64_t resident_columns(const SplitProductArgs& g) {
  return std::max<int64_t>(1, kResident / std::clamp<int64_t>(g.left.depth, 1, kDepth));
}

// Block rows of a task, which multiplies them by a resident group of columns: few enough that there
// are tasks for all threads.
int64_t task_rows(const SplitProductArgs& g) { return std::clamp<int64_t>(g.left.sides / 8, 1, 4); }

// The epilogue of a block of block row i. The bias is added last: sums of few products then round
// no more often than in fp32.
void finish_tile(const SplitProductArgs& g, int64_t i, int64_t rows, float* c, int64_t ldc) {
  if (g.bias == nullptr && g.scale == 1 && !g.rectified) return;
  const float* bias = g.bias != nullptr ? g.bias + i * kSplitSide : nullptr;
  g.left.engine->finish(c, ldc, rows, g.scale, bias, g.rectified);
}

// c = or += `count` blocks along the depth from block k on.
void multiply(const SplitProductArgs& g, int64_t i, int64_t j, int64_t k, int64_t count, float* c,
              int64_t ldc, bool add) {
  const SplitEngine& engine = *g.left.engine;
  const auto product = g.right.one_part ? engine.multiply_one_part : engine.multiply;
  product(g.left.at(i, k), g.right.at(j, k), count, c, ldc, add);
}

// Computes a block at the edge of c in a buffer, over the whole depth.
void multiply_edge(const SplitProductArgs& g, int64_t i, int64_t j) {
  alignas(64) float sums[kSplitSide * kSplitSide];
  const int64_t rows = part(g.rows, i), columns = part(g.columns, j);
  multiply(g, i, j, 0, g.left.depth, sums, kSplitSide, false);
  finish_tile(g, i, rows, sums, kSplitSide);
  float* to = g.c + i * g.row_step + j * g.column_step;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const float sum = sums[row * kSplitSide + column];
      float& c = to[row * g.ldc + column];
      c = g.add ? c + sum : sum;
    }
  }
}

}  // namespace

void SplitMatrix::take_left(const float* a, int64_t lda, int64_t rows, int64_t deep,
                            Range range) const {
  for (int64_t i = range.begin; i < range.end; ++i) {
    for (int64_t k = 0; k < depth; ++k) {
      engine->split_left(a + i * kSplitSide * lda + k * kSplitSide, lda, part(rows, i),
                         part(deep, k), at(i, k));
    }
  }
}

void SplitMatrix::take_left_transposed(const float* a, int64_t lda, int64_t rows, int64_t deep,
                                       Range range, int64_t first, int64_t count) const {
  for (int64_t i = range.begin; i < range.end; ++i) {
    for (int64_t k = 0; k < count; ++k) {
      engine->split_left_transposed(a + k * kSplitSide * lda + i * kSplitSide, lda, part(rows, i),
                                    part(deep, k), at(i, first + k));
    }
  }
}

void SplitMatrix::take_panel(const float* panel, int64_t deep, int64_t j) const {
  for (int64_t k = 0; k < depth; ++k) {
    take_right_block(panel + k * kSplitSide * kSplitSide, kSplitSide, part(deep, k), kSplitSide, j,
                     k);
  }
}

void SplitMatrix::take_right_block(const float* b, int64_t ldb, int64_t deep, int64_t columns,
                                   int64_t side, int64_t k) const {
  (one_part ? engine->take_right : engine->split_right)(b, ldb, deep, columns, at(side, k));
}

void SplitMatrix::take_right(const float* b, int64_t ldb, int64_t deep, int64_t columns,
                             Range range) const {
  for (int64_t j = range.begin; j < range.end; ++j) {
    for (int64_t k = 0; k < depth; ++k) {
      take_right_block(b + k * kSplitSide * ldb + j * kSplitSide, ldb, part(deep, k),
                       part(columns, j), j, k);
    }
  }
}

void split_multiply(const SplitProductArgs& g, Range rows, Range columns) {
  const int64_t depth = g.left.depth, step = std::min(depth, kDepth);
  const int64_t group = resident_columns(g);
  for (int64_t first = columns.begin; first < columns.end; first += group) {
    const int64_t last = std::min(first + group, columns.end);
    for (int64_t k = 0; k < depth; k += step) {
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        for (int64_t j = first; j < last; ++j) {
          const bool whole = part(g.rows, i) == kSplitSide && part(g.columns, j) == kSplitSide;
          if (!whole) {
            if (k == 0) multiply_edge(g, i, j);
            continue;
          }
          float* to = g.c + i * g.row_step + j * g.column_step;
          multiply(g, i, j, k, std::min(step, depth - k), to, g.ldc, g.add || k > 0);
          if (k + step >= depth) finish_tile(g, i, kSplitSide, to, g.ldc);
        }
      }
    }
  }
}

int64_t split_tasks(const SplitProductArgs& g) {
  const int64_t group = resident_columns(g), rows = task_rows(g);
  return (g.left.sides + rows - 1) / rows * ((g.right.sides + group - 1) / group);
}

void split_multiply_task(const SplitProductArgs& g, int64_t task) {
  const int64_t group = resident_columns(g), rows = task_rows(g);
  const int64_t high = (g.left.sides + rows - 1) / rows;
  const int64_t i = task % high * rows, j = task / high * group;
  split_multiply(g, {i, std::min(i + rows, g.left.sides)}, {j, std::min(j + group, g.right.sides)});
}

}  // namespace ridgeline::cpu::simd
