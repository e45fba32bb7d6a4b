#pragma once

#include "ridgeline/cpu/simd/kernel.h"

namespace ridgeline::cpu::simd {

// The workspace of a loss over x[n, out]: the sums of each group of kGroup rows, which threads fill
// and which are added up in order, and the weights of the columns in the type of x.
template <typename T>
struct LossScratch {
  LossScratch(std::byte* base, const Shape& x) : groups(groups_of<T>(x[0])) {
    Scratch scratch(base);
    weights = scratch.take<T>(size_t(x[1]));
    loss = scratch.take<double>(size_t(groups));
    correct = scratch.take<int32_t>(size_t(groups));
    bytes = scratch.bytes();
  }
  int64_t groups;
  T* weights;
  double* loss;
  int32_t* correct;
  size_t bytes;
};

// Covers a loss or its gradient, whose input is `x`, with a LossScratch as workspace.
template <typename Op>
Cover cover_loss(const Op& op) {
  if constexpr (requires { op.loss_scale; }) {
    if (op.loss_scale) return Cover::no("takes no loss scale");
  }
  Cover cover = Cover::of(1);
  cover.workspace = with_type(op.x.dtype, [&](auto zero) {
    return LossScratch<decltype(zero)>(nullptr, op.x.shape).bytes;
  });
  return cover;
}

// The step of a loss: `call.run()` fills the sums, and `call.factor()` is what the sum of all rows
// is multiplied by. `labels`: whether the targets are labels, so that right answers are counted.
template <typename Call, typename Op, typename T>
std::unique_ptr<Step> make_loss_step(Call call, const Op& op, const LossScratch<T>& scratch,
                                     bool labels, const Binding& binding) {
  auto* correct = binding.write(op.correct).template as<int32_t>();
  call.args.loss = scratch.loss;
  call.args.correct = correct != nullptr && labels ? scratch.correct : nullptr;
  return make_step([call, scratch, correct, scale = op.scale,
                    tick = binding.read(op.tick).template as<int32_t>(),
                    loss = binding.write(op.loss).template as<double>()] {
    call.run();
    double sum = 0;
    int32_t hits = 0;
    for (int64_t g = 0; g < scratch.groups; ++g) {
      sum += scratch.loss[g];
      if (call.args.correct != nullptr) hits += scratch.correct[g];
    }
    loss[*tick] = scale * call.factor() * sum;
    if (correct != nullptr) correct[*tick] = hits;
  });
}

}  // namespace ridgeline::cpu::simd
