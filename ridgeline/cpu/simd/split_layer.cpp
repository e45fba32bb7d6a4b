#include "ridgeline/cpu/simd/split_layer.h"

#include <algorithm>

namespace ridgeline::cpu::simd {
namespace {

constexpr int64_t kSquare = kSplitSide * kSplitSide;

// Holds the tile registers of the calling thread while it lives.
struct Tiles {
  explicit Tiles(const SplitEngine& of) : engine(of) { engine.begin(); }
  ~Tiles() { engine.end(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  const SplitEngine& engine;
};

int64_t part(int64_t whole, int64_t block) {
  return std::min(kSplitSide, whole - block * kSplitSide);
}

}  // namespace

void SplitLayer::take_inputs(const float* x_panels, const float* x, int64_t ldx) const {
  const SplitMatrix to = inputs(), by_feature = inputs_by_feature();
  for (int64_t k = 0; k < to.depth; ++k) {
    const int64_t features = part(in, k);
    for (int64_t p = 0; p < panels(); ++p) {
      const float* panel = x_panels + (p * in + k * kSplitSide) * kSplitSide;
      to.take_right_block(panel, kSplitSide, features, part(n, p), p, k);
      if (x != nullptr) {
        const float* from = x + p * kSplitSide * ldx + k * kSplitSide;
        by_feature.take_right_block(from, ldx, part(n, p), features, k, p);
      } else {
        engine->split_right_transposed(panel, kSplitSide, part(n, p), features,
                                       by_feature.at(k, p));
      }
    }
  }
}

// Returns side `side` of a left operand; for passing weights, in the place of the first.
SplitMatrix SplitLayer::side_of(const SplitMatrix& left, int64_t side, Weights weights) {
  SplitMatrix one = left;
  one.sides = 1;
  if (weights != Weights::passing) one.blocks = left.at(side, 0);
  return one;
}

void SplitLayer::forward(const float* w, const float* bias, bool rectified, float* y_panels,
                         Weights weights) const {
  const SplitMatrix left = own_weights();
  const Tiles tiles(*engine);
  for (int64_t i = 0; i < left.sides; ++i) {
    const int64_t row = rows.begin + i * kSplitSide, count = std::min(kSplitSide, rows.end - row);
    SplitProductArgs args{side_of(left, i, weights),
                          inputs(),
                          y_panels + row * kSplitSide,
                          0,
                          out * kSplitSide,
                          kSplitSide,
                          count,
                          panels() * kSplitSide,
                          bias != nullptr ? bias + row : nullptr};
    args.scale = scale;
    args.rectified = rectified;
    if (weights != Weights::kept) args.left.take_left(w + row * in, in, count, in, {0, 1});
    split_multiply(args, {0, 1}, {0, panels()});
  }
}

void SplitLayer::take_gradients(const float* dz_panels, bool for_input) const {
  const SplitMatrix by_row = gradients_by_row(), right = gradients();
  for (int64_t i = 0; i < own_blocks(); ++i) {
    const int64_t first = rows.begin + i * kSplitSide;
    const int64_t count = std::min(kSplitSide, rows.end - first);
    for (int64_t p = 0; p < panels(); ++p) {
      const float* from = dz_panels + (p * out + first) * kSplitSide;
      engine->split_left(from, kSplitSide, count, part(n, p), by_row.at(i, p));
      if (for_input) engine->split_right(from, kSplitSide, count, part(n, p), right.at(p, i));
    }
  }
}

void SplitLayer::input_grad(const float* w, float* dx_panels, Weights weights) const {
  const SplitMatrix left = transposed_weights();
  const Tiles tiles(*engine);
  for (int64_t i = 0; i < left.sides; ++i) {
    const int64_t column = i * kSplitSide;
    const SplitMatrix one = side_of(left, i, weights);
    if (weights != Weights::kept) {
      one.take_left_transposed(w + rows.begin * in + column, in, part(in, i), rows.end - rows.begin,
                               {0, 1}, 0, one.depth);
    }
    split_multiply({one, gradients(), dx_panels + column * kSplitSide, 0, in * kSplitSide,
                    kSplitSide, part(in, i), panels() * kSplitSide},
                   {0, 1}, {0, panels()});
  }
}

void SplitLayer::weight_grad(int64_t block, float* dw, bool add) const {
  const int64_t row = block * kSplitSide;
  SplitProductArgs args{side_of(gradients_by_row(), block, Weights::kept),
                        inputs_by_feature(),
                        dw,
                        0,
                        kSplitSide,
                        in,
                        std::min(kSplitSide, rows.end - rows.begin - row),
                        in};
  args.add = add;
  const Tiles tiles(*engine);
  split_multiply(args, {0, 1}, {0, args.right.sides});
}

}  // namespace ridgeline::cpu::simd
