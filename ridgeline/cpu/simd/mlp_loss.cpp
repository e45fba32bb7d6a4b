#include "ridgeline/cpu/simd/mlp_loss.h"

#include <algorithm>

#include "ridgeline/cpu/simd/batch.h"
#include "ridgeline/cpu/simd/elementwise_loss.h"

namespace ridgeline::cpu::simd {

template <typename T>
void mlp_loss(const MlpLoss& loss, const MlpLossArgs<T>& args, Range groups) {
  const BatchFunctions<T>& batch = batch_functions<T>();
  if (loss.kind == MlpLoss::Kind::softmax_xent) {
    return batch.softmax_xent(
        {args.x, args.label, args.dx, args.n, args.out, args.scale, args.loss, args.correct},
        groups);
  }
  T* const x = args.rows;
  T* const dx = args.rows + args.n * args.out;
  const Range rows{groups.begin * kGroup<T>, std::min(groups.end * kGroup<T>, args.n)};
  batch.from_panels(args.x, args.out, x, args.out, rows, {0, args.out});
  const bool labels = loss.has_labels(), squared = loss.kind == MlpLoss::Kind::mse;
  elementwise_loss_functions<T>().run(
      {.fn = squared ? ElementFn::squared_error : element_fn(loss.fn),
       .x = x,
       .target = labels ? nullptr : args.target,
       .label = labels ? args.label : nullptr,
       .weights = args.weights,
       .sample_weights = nullptr,
       .timesteps = 1,
       .n = args.n,
       .out = args.out,
       .columns = labels ? args.out : loss.columns,
       .delta = T(loss.delta),
       .loss = args.loss,
       .correct = labels ? args.correct : nullptr,
       .dx = dx,
       .factor = T(args.scale)},
      groups);
  batch.to_panels(dx, args.out, args.out, args.dx, rows, {0, args.out});
  if (!labels) std::fill(args.correct + groups.begin, args.correct + groups.end, 0);
}

template void mlp_loss(const MlpLoss&, const MlpLossArgs<float>&, Range);
template void mlp_loss(const MlpLoss&, const MlpLossArgs<double>&, Range);

}  // namespace ridgeline::cpu::simd
