#include "ridgeline/cpu/simd/mlp_loss.h"

#include <algorithm>

#include "ridgeline/cpu/simd/batch.h"
#include "ridgeline/cpu/simd/elementwise_loss.h"
#include "ridgeline/cpu/simd/mse.h"

namespace ridgeline::cpu::simd {
namespace {

// Sets the arguments that MseArgs and ElementwiseLossArgs share. `x` and `dx` are batch-major.
template <typename Args, typename T>
Args batch_major(const MlpLoss& loss, const MlpLossArgs<T>& from, T* x, T* dx) {
  Args args{};
  args.x = x;
  args.target = loss.has_labels() ? nullptr : from.target;
  args.label = loss.has_labels() ? from.label : nullptr;
  args.n = from.n;
  args.out = from.out;
  args.loss = from.loss;
  args.correct = loss.has_labels() ? from.correct : nullptr;
  args.dx = dx;
  return args;
}

}  // namespace

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
  if (loss.kind == MlpLoss::Kind::mse) {
    auto mse = batch_major<MseArgs<T>>(loss, args, x, dx);
    mse.factor = T(2 * args.scale);
    mse_functions<T>().run(mse, groups);
  } else {
    auto elements = batch_major<ElementwiseLossArgs<T>>(loss, args, x, dx);
    elements.fn = loss.fn;
    elements.weights = args.weights;
    elements.columns = loss.has_labels() ? args.out : loss.columns;
    elements.delta = T(loss.delta);
    elements.factor = T(args.scale);
    elementwise_loss_functions<T>().run(elements, groups);
  }
  batch.to_panels(dx, args.out, args.out, args.dx, rows, {0, args.out});
  if (!loss.has_labels()) std::fill(args.correct + groups.begin, args.correct + groups.end, 0);
}

template void mlp_loss(const MlpLoss&, const MlpLossArgs<float>&, Range);
template void mlp_loss(const MlpLoss&, const MlpLossArgs<double>&, Range);

}  // namespace ridgeline::cpu::simd
