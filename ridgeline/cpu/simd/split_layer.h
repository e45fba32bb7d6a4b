#pragma once

#include <cstddef>
#include <cstdint>

#include "ridgeline/core/buffer.h"
#include "ridgeline/core/thread_pool.h"
#include "ridgeline/cpu/simd/split_matrix.h"

namespace ridgeline::cpu::simd {

// The three products of a linear layer by blocks of split_product.h, for one thread, which owns
// some rows of w. Values are panels, whose width is a block's side. Each thread splits its operands
// for itself, because fetching the lines that another has split would cost more.
struct SplitLayer {
  const SplitEngine* engine = nullptr;
  int64_t in = 0, out = 0, n = 0;  // n: samples of a chunk
  Range rows{};                    // of w
  bool one_part = false;           // the inputs are small integers, to be multiplied by `scale`
  float scale = 1;
  std::byte* memory = nullptr;

  size_t memory_bytes() const {
    return 2 * (bytes(own_weights()) + bytes(inputs()) + bytes(gradients()));
  }

  int64_t panels() const { return split_blocks(n); }
  int64_t own_blocks() const { return split_blocks(rows.end - rows.begin); }

  // Takes panels and, if not null, the batch-major x, which must be null with one_part.
  void take_inputs(const float* x_panels, const float* x, int64_t ldx) const;
  // The lifetime of the split weights: a batch of several chunks keeps them from its first chunk
  // on. For a batch of one chunk, each block of rows is split just before its product.
  enum class Weights { split, kept, passing };
  // With `rectified`, negative results become zero (ReLU).
  void forward(const float* w, const float* bias, bool rectified, float* y_panels,
               Weights weights) const;
  // Takes the gradients of the own rows; `for_input` if input_grad follows.
  void take_gradients(const float* dz_panels, bool for_input) const;
  // Computes the own rows' contribution to dx.
  void input_grad(const float* w, float* dx_panels, Weights weights) const;
  // Computes block `block` of the own rows, into or added to dw[rows of the block, in].
  void weight_grad(int64_t block, float* dw, bool add) const;

 private:
  static SplitMatrix side_of(const SplitMatrix& left, int64_t side, Weights weights);
  static size_t bytes(const SplitMatrix& matrix) {
    return align_up(matrix.size() * sizeof(uint16_t));
  }
  SplitMatrix place(int64_t sides, int64_t depth, bool of_one_part, size_t offset) const {
    return {engine, sides, depth, reinterpret_cast<uint16_t*>(memory + offset), of_one_part};
  }
  // Left operands: w and its transpose. They come first, where a smaller chunk finds them too.
  SplitMatrix own_weights() const { return place(own_blocks(), split_blocks(in), false, 0); }
  SplitMatrix transposed_weights() const {
    return place(split_blocks(in), own_blocks(), false, bytes(own_weights()));
  }
  // Right operands: for the forward product, [panels][blocks of in]; for dw, [blocks of
  // in][panels].
  SplitMatrix inputs() const {
    return place(panels(), split_blocks(in), one_part, 2 * bytes(own_weights()));
  }
  SplitMatrix inputs_by_feature() const {
    const SplitMatrix before = inputs();
    return place(split_blocks(in), panels(), one_part, 2 * bytes(own_weights()) + bytes(before));
  }
  // The right operand of dx and the left one of dw.
  SplitMatrix gradients() const {
    return place(panels(), own_blocks(), false, 2 * (bytes(own_weights()) + bytes(inputs())));
  }
  SplitMatrix gradients_by_row() const {
    return place(own_blocks(), panels(), false,
                 2 * (bytes(own_weights()) + bytes(inputs())) + bytes(gradients()));
  }
};

}  // namespace ridgeline::cpu::simd
