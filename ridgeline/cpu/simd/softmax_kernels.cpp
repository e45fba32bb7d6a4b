#include "ridgeline/cpu/simd/batch.h"
#include "ridgeline/cpu/simd/kernel.h"

namespace ridgeline::cpu::simd {
namespace {

template <typename T>
struct SoftmaxScratch {
  SoftmaxScratch(std::byte* base, const Shape& shape) {
    Scratch scratch(base);
    panels = scratch.take<T>(panel_elements<T>(shape[0], shape[1]));
    loss = scratch.take<double>(size_t(groups_of<T>(shape[0])));
    correct = scratch.take<int32_t>(size_t(groups_of<T>(shape[0])));
    bytes = scratch.bytes();
  }
  T* panels;
  double* loss;
  int32_t* correct;
  size_t bytes;
};

Cover covers_xent(const RemainingOps& rest, bool with_grad) {
  const std::string reason = refuses(rest, &SoftmaxXent::x);
  if (!reason.empty()) return Cover::no(reason);
  const auto& op = *rest.get<SoftmaxXent>(0);
  if (!op.one_hot()) return Cover::no("takes no class weights or smoothing");
  Cover cover = Cover::of(with_grad ? 2 : 1);
  if (with_grad) {
    const auto* grad = rest.get<SoftmaxXentGrad>(1);
    if (grad == nullptr || grad->x.id != op.x.id || grad->label.id != op.label.id) {
      return Cover::no("the loss's gradient does not follow");
    }
    if (!grad->one_hot()) return Cover::no("takes no class weights or smoothing");
    if (grad->loss_scale) return Cover::no("takes no loss scale");
  }
  cover.workspace = with_type(op.x.dtype, [&](auto zero) {
    return SoftmaxScratch<decltype(zero)>(nullptr, op.x.shape).bytes;
  });
  return cover;
}

// Threads take groups of samples, and convert each through both layouts.
template <typename T>
std::unique_ptr<Step> prepare_xent(const SoftmaxXent& op, const SoftmaxXentGrad* grad,
                                   const Binding& binding) {
  const SoftmaxScratch<T> scratch(binding.workspace(), op.x.shape);
  const int64_t n = op.x.shape[0], classes = op.x.shape[1];
  const SoftmaxXentArgs<T> args{scratch.panels,
                                binding.read(op.label).as<int32_t>(),
                                grad != nullptr ? scratch.panels : nullptr,
                                n,
                                classes,
                                grad != nullptr ? grad->scale : op.scale,
                                scratch.loss,
                                scratch.correct};
  T* dx = grad != nullptr ? binding.write(grad->dx).as<T>() : nullptr;
  return make_step([args, dx, n, classes, scale = op.scale, panels = scratch.panels,
                    x = binding.read(op.x).as<T>(), tick = binding.read(op.tick).as<int32_t>(),
                    loss = binding.write(op.loss).as<double>(),
                    correct = binding.write(op.correct).as<int32_t>(),
                    &pool = cpu_runtime(binding.runtime()).pool()] {
    const BatchFunctions<T>& functions = batch_functions<T>();
    const int64_t least = kLeastElements / (8 * kGroup<T> * classes) + 1;  // an exp costs 8
    pool.share(groups_of<T>(n), 1, least, [&](Range groups) {
      const Range rows{groups.begin * kGroup<T>, std::min(groups.end * kGroup<T>, n)};
      functions.to_panels(x, classes, classes, panels, rows, {0, classes});
      functions.softmax_xent(args, groups);
      if (dx != nullptr) functions.from_panels(panels, classes, dx, classes, rows, {0, classes});
    });
    double sum = 0;
    int32_t hits = 0;
    for (int64_t g = 0; g < groups_of<T>(n); ++g) sum += args.loss[g], hits += args.correct[g];
    loss[*tick] = scale * sum;
    if (correct != nullptr) correct[*tick] = hits;
  });
}

Cover covers_softmax(const RemainingOps& rest) {
  const std::string reason = refuses(rest, &Softmax::x);
  if (!reason.empty()) return Cover::no(reason);
  const auto& op = *rest.get<Softmax>(0);
  Cover cover = Cover::of(1);
  cover.workspace = with_type(op.x.dtype, [&](auto zero) {
    return SoftmaxScratch<decltype(zero)>(nullptr, op.x.shape).bytes;
  });
  return cover;
}

std::unique_ptr<Step> prepare_softmax(const Span& span, const Binding& binding) {
  const auto& op = span.get<Softmax>(0);
  return with_type(op.x.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    using T = decltype(zero);
    return make_step([n = op.x.shape[0], classes = op.x.shape[1],
                      panels = SoftmaxScratch<T>(binding.workspace(), op.x.shape).panels,
                      x = binding.read(op.x).template as<T>(),
                      y = binding.write(op.y).template as<T>(),
                      &pool = cpu_runtime(binding.runtime()).pool()] {
      const BatchFunctions<T>& functions = batch_functions<T>();
      const int64_t least = kLeastElements / (8 * kGroup<T> * classes) + 1;
      pool.share(groups_of<T>(n), 1, least, [&](Range groups) {
        const Range rows{groups.begin * kGroup<T>, std::min(groups.end * kGroup<T>, n)};
        functions.to_panels(x, classes, classes, panels, rows, {0, classes});
        functions.softmax(panels, panels, n, classes, groups);
        functions.from_panels(panels, classes, y, classes, rows, {0, classes});
      });
    });
  });
}

}  // namespace

KernelTable softmax_kernels() {
  Kernel both;
  both.name = "cpu.softmax_xent_grad.simd";
  both.covers = [](const RemainingOps& rest) { return covers_xent(rest, true); };
  both.prepare = [](const Span& span, const Binding& binding) {
    const auto& op = span.get<SoftmaxXent>(0);
    return with_type(op.x.dtype, [&](auto zero) {
      return prepare_xent<decltype(zero)>(op, &span.get<SoftmaxXentGrad>(1), binding);
    });
  };
  Kernel loss;
  loss.name = "cpu.softmax_xent.simd";
  loss.covers = [](const RemainingOps& rest) { return covers_xent(rest, false); };
  loss.prepare = [](const Span& span, const Binding& binding) {
    const auto& op = span.get<SoftmaxXent>(0);
    return with_type(op.x.dtype,
                     [&](auto zero) { return prepare_xent<decltype(zero)>(op, nullptr, binding); });
  };
  Kernel probabilities;
  probabilities.name = "cpu.softmax.simd";
  probabilities.covers = covers_softmax;
  probabilities.prepare = prepare_softmax;
  return computing_in(kFloatAndDouble, {both, loss, probabilities});
}

}  // namespace ridgeline::cpu::simd
