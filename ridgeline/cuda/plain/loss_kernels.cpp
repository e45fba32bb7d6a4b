#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/kernels.h"
#include "ridgeline/cuda/plain/loss.h"

namespace ridgeline::cuda {
namespace {

// The two losses differ in what x is compared with, and in their GPU function.
const Value& compared(const SoftmaxXent& op) { return op.label; }
const Value& compared(const SoftmaxXentGrad& op) { return op.label; }
const Value& compared(const Mse& op) { return op.target; }
const Value& compared(const MseGrad& op) { return op.target; }
const Value& compared(const ElementwiseLoss& op) { return op.target; }
const Value& compared(const ElementwiseLossGrad& op) { return op.target; }

constexpr ElementLossFn element_loss_fn(LossFn fn) { return ElementLossFn(int(fn)); }
static_assert(element_loss_fn(LossFn::huber) == ElementLossFn::huber);
static_assert(element_loss_fn(LossFn::bce_with_logits) == ElementLossFn::bce_with_logits);
static_assert(element_loss_fn(LossFn::quantile) == ElementLossFn::quantile);

template <typename Op>
constexpr bool kIsXent = std::is_same_v<Op, SoftmaxXent> || std::is_same_v<Op, SoftmaxXentGrad>;
template <typename Op>
constexpr bool kIsElementwise =
    std::is_same_v<Op, ElementwiseLoss> || std::is_same_v<Op, ElementwiseLossGrad>;

// The other operands and settings of the ops, beside x and the target.
template <typename T, typename Op>
void add_settings(LossArgs<T>& args, const Op& op, const Binding& binding) {
  if constexpr (kIsXent<Op> || kIsElementwise<Op>) {
    args.weights = binding.read(op.weights).template as<double>();
    args.weight_count = op.weights ? op.weights.shape.numel() : 1;
    args.sample_weights = binding.read(op.sample_weights).template as<T>();
    if (op.sample_weights) args.timesteps = op.x.shape[0] / op.sample_weights.shape.numel();
  }
  if constexpr (kIsXent<Op>) args.smoothing = op.smoothing;
  if constexpr (kIsElementwise<Op>) {
    args.fn = element_loss_fn(op.fn);
    args.delta = op.delta;
    args.target_columns = is_float(op.target.dtype) ? op.target.shape[1] : 0;
  }
}

template <typename Loss, typename Grad>
bool same_settings(const Loss& loss, const Grad& grad) {
  if constexpr (kIsXent<Loss>) {
    return loss.weights.id == grad.weights.id && loss.smoothing == grad.smoothing &&
           loss.sample_weights.id == grad.sample_weights.id;
  } else if constexpr (kIsElementwise<Loss>) {
    return loss.fn == grad.fn && loss.delta == grad.delta && loss.weights.id == grad.weights.id &&
           loss.sample_weights.id == grad.sample_weights.id;
  } else {
    return true;
  }
}

template <typename Op>
size_t workspace(const Op& op, bool with_loss) {
  const int64_t n = op.x.shape[0];
  if constexpr (kIsXent<Op>) {
    if (!op.one_hot()) return weighted_xent_workspace(n);
  }
  return with_loss ? loss_workspace(n) : 0;
}

std::string refuse(const Value& x, const Value& target, const Value& dx) {
  const Value float_target = is_float(target.dtype) ? target : Value{};
  return refuse_floats({x, float_target, dx});
}

template <typename Loss>
Cover covers_loss(const RemainingOps& rest) {
  const auto* op = rest.get<Loss>(0);
  if (op == nullptr) return no_such_op(Loss::kName);
  return cover_unless(refuse(op->x, compared(*op), {}), 1, workspace(*op, true));
}

template <typename Grad>
Cover covers_grad(const RemainingOps& rest) {
  const auto* op = rest.get<Grad>(0);
  if (op == nullptr) return no_such_op(Grad::kName);
  return cover_unless(refuse(op->x, compared(*op), op->dx), 1, workspace(*op, false));
}

template <typename Loss, typename Grad>
Cover covers_both(const RemainingOps& rest) {
  const auto* loss = rest.get<Loss>(0);
  const auto* grad = rest.get<Grad>(1);
  if (loss == nullptr || grad == nullptr || loss->x.id != grad->x.id ||
      compared(*loss).id != compared(*grad).id || !same_settings(*loss, *grad)) {
    return Cover::no(fmt::format("the next ops are no {} and its gradient", Loss::kName));
  }
  return cover_unless(refuse(loss->x, compared(*loss), grad->dx), 2, workspace(*loss, true));
}

template <typename T, typename Op>
void add_operands(LossArgs<T>& args, const Op& op, const Binding& binding) {
  args.x = binding.read(op.x).template as<T>();
  args.n = op.x.shape[0];
  args.classes = op.x.shape[1];
  add_settings(args, op, binding);
  const Tensor target = binding.read(compared(op));
  if (target.dtype == DType::int32) {
    args.label = target.as<int32_t>();
  } else {
    args.target = target.as<T>();
  }
}

template <typename T, typename Loss>
void add_score(LossArgs<T>& args, const Loss& op, const Binding& binding) {
  args.tick = binding.read(op.tick).template as<int32_t>();
  args.loss = binding.write(op.loss).template as<double>();
  args.correct = binding.write(op.correct).template as<int32_t>();
  args.loss_scale = op.scale;
}

// Prepares Loss, Grad, or both: whichever the span holds.
template <typename Loss, typename Grad>
std::unique_ptr<Step> prepare(const Span& span, const Binding& binding) {
  const auto* loss = std::get_if<Loss>(&span.op(0));
  const auto* grad = std::get_if<Grad>(&span.op(span.size() - 1));
  const DType dtype = loss != nullptr ? loss->x.dtype : grad->x.dtype;
  return dispatch_device_float(dtype, [&](auto type) {
    using T = decltype(type);
    LossArgs<T> args;
    if (loss != nullptr) {
      add_operands(args, *loss, binding);
      add_score(args, *loss, binding);
    }
    if (grad != nullptr) {
      add_operands(args, *grad, binding);
      args.dx = binding.write(grad->dx).template as<T>();
      args.grad_scale = grad->scale;
      args.grad_factor = binding.read(grad->loss_scale).template as<double>();
    }
    const bool one_hot =
        args.weights == nullptr && args.sample_weights == nullptr && args.smoothing == 0;
    const auto launch = kIsElementwise<Loss> ? launch_elementwise_loss<T>
                        : !kIsXent<Loss>     ? launch_mse<T>
                        : one_hot            ? launch_softmax_xent<T>
                                             : launch_weighted_xent<T>;
    return launch_step(binding, describe(span.op(0)),
                       [args, launch, workspace = binding.workspace()](cudaStream_t stream) {
                         return launch(args, workspace, stream);
                       });
  });
}

template <typename Loss, typename Grad>
void add_kernels(KernelTable& table) {
  table.push_back(cuda_kernel(fmt::format("cuda.{}_and_grad.plain", Loss::kName),
                              covers_both<Loss, Grad>, prepare<Loss, Grad>));
  table.push_back(cuda_kernel(fmt::format("cuda.{}.plain", Loss::kName), covers_loss<Loss>,
                              prepare<Loss, Grad>));
  table.push_back(cuda_kernel(fmt::format("cuda.{}.plain", Grad::kName), covers_grad<Grad>,
                              prepare<Loss, Grad>));
}

Cover covers_softmax(const RemainingOps& rest) {
  const auto* op = rest.get<Softmax>(0);
  if (op == nullptr) return no_such_op(Softmax::kName);
  return cover_unless(refuse_floats({op->x, unless_accumulator(op->y, op->x.dtype)}), 1);
}

template <typename T, typename Out>
std::unique_ptr<Step> softmax_step(const Softmax& op, const Binding& binding) {
  return launch_step(binding, describe(op),
                     [x = binding.read(op.x).as<T>(), y = binding.write(op.y).as<Out>(),
                      n = op.x.shape[0], classes = op.x.shape[1]](cudaStream_t stream) {
                       return launch_softmax<T, Out>(x, y, n, classes, stream);
                     });
}

std::unique_ptr<Step> prepare_softmax(const Span& span, const Binding& binding) {
  const auto& op = span.get<Softmax>(0);
  return dispatch_device_float(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    if constexpr (sizeof(T) == 2) {
      if (is_accumulator(op.y, op.x.dtype)) return softmax_step<T, float>(op, binding);
    }
    return softmax_step<T, T>(op, binding);
  });
}

Cover covers_argmax(const RemainingOps& rest) {
  const auto* op = rest.get<Argmax>(0);
  if (op == nullptr) return no_such_op(Argmax::kName);
  return cover_unless(refuse_large({op->x.shape[0], op->x.shape[1]}), 1);
}

std::unique_ptr<Step> prepare_argmax(const Span& span, const Binding& binding) {
  const auto& op = span.get<Argmax>(0);
  return dispatch_device_float(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    return launch_step(binding, describe(span.op(0)),
                       [x = binding.read(op.x).as<T>(), y = binding.write(op.y).as<int32_t>(),
                        n = op.x.shape[0], classes = op.x.shape[1]](cudaStream_t stream) {
                         return launch_argmax<T>(x, y, n, classes, stream);
                       });
  });
}

}  // namespace

KernelTable plain_loss_kernels() {
  KernelTable table;
  add_kernels<SoftmaxXent, SoftmaxXentGrad>(table);
  add_kernels<Mse, MseGrad>(table);
  add_kernels<ElementwiseLoss, ElementwiseLossGrad>(table);
  table.push_back(cuda_kernel("cuda.softmax.plain", covers_softmax, prepare_softmax));
  table.push_back(cuda_kernel("cuda.argmax.plain", covers_argmax, prepare_argmax));
  return concurrent(std::move(table));
}

}  // namespace ridgeline::cuda
