// "cuda.head_grads.plain": the last layer of a classifier with its loss and its backward pass.
#include <optional>

#include "ridgeline/cuda/graph_order.h"
#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/bind_mixed_operand.h"
#include "ridgeline/cuda/plain/head_grads.h"
#include "ridgeline/cuda/plain/kernels.h"

namespace ridgeline::cuda {
namespace {

struct Head {
  const Linear* linear = nullptr;
  const SoftmaxXent* loss = nullptr;
  const SoftmaxXentGrad* grad = nullptr;
  const LinearGradX* grad_x = nullptr;
  const LinearGradW* grad_w = nullptr;
  // The gradient of the activation before the layer; absent if an update or another layer follows.
  const ActivationGrad* activation = nullptr;

  size_t ops() const { return activation != nullptr ? 6 : 5; }
};

std::optional<Head> find(const RemainingOps& rest) {
  Head h{rest.get<Linear>(0),      rest.get<SoftmaxXent>(1), rest.get<SoftmaxXentGrad>(2),
         rest.get<LinearGradX>(3), rest.get<LinearGradW>(4), rest.get<ActivationGrad>(5)};
  if (h.linear == nullptr || h.loss == nullptr || h.grad == nullptr || h.grad_x == nullptr ||
      h.grad_w == nullptr) {
    return {};
  }
  const ValueId y = h.linear->y.id, dy = h.grad->dx.id;
  if (h.loss->x.id != y || h.grad->x.id != y || h.grad->label.id != h.loss->label.id ||
      h.grad_x->dy.id != dy || h.grad_x->w.id != h.linear->w.id || h.grad_w->dy.id != dy ||
      h.grad_w->x.id != h.linear->x.id) {
    return {};
  }
  if (h.activation != nullptr &&
      (h.activation->saved.id != h.linear->x.id || h.activation->dy.id != h.grad_x->dx.id ||
       !saves_output(h.activation->kind) || !rest.dead_after(h.grad_x->dx, 6))) {
    h.activation = nullptr;
  }
  return h;
}

std::string refuse(const Head& h) {
  if (!h.loss->one_hot() || !h.grad->one_hot()) return "takes no class weights or smoothing";
  const Linear& op = *h.linear;
  const DType dtype = op.x.dtype;
  std::string reason =
      refuse_floats({op.x, op.w, unless_mixed(op.b, dtype), h.grad_x->dx,
                     unless_mixed(h.grad_w->dw, dtype), unless_mixed(h.grad_w->db, dtype)});
  if (!reason.empty()) return reason;
  if (op.out() > kMostHeadOutputs) return "takes up to 16 outputs";
  const int64_t numbers = op.in() * (kHeadRows + op.out());
  if (numbers * int64_t(size_of(accumulated(dtype))) > kMostHeadBytes) {
    return "the weights and eight samples of inputs do not fit in shared memory";
  }
  if (h.loss->x.shape[0] != op.n() || h.loss->x.shape[1] != op.out()) {
    return "takes one target a sample";
  }
  return refuse_large({op.n(), op.in(), op.out()});
}

Cover covers(const RemainingOps& rest) {
  const auto h = find(rest);
  if (!h) return Cover::no("the next ops are no last layer, its loss and their gradients");
  const std::string reason = refuse(*h);
  if (!reason.empty()) return Cover::no(reason);
  Cover cover = Cover::of(h->ops());
  Values inner{h->linear->y, h->grad->dx};
  if (h->activation != nullptr) inner.push_back(h->grad_x->dx);
  for (const Value& value : inner) {
    if (!rest.dead_after(value, h->ops())) return Cover::no("a value between is needed later");
    cover.skips.push_back(value.id);
  }
  const Linear& op = *h->linear;
  cover.workspace = head_grads_workspace(int(op.n()), int(op.in()), int(op.out()),
                                         size_of(accumulated(op.x.dtype)));
  return cover;
}

std::unique_ptr<Step> prepare(const Span& span, const Binding& binding) {
  const Head h = *find(RemainingOps{span.program, span.begin, binding.runtime()});
  const Linear& op = *h.linear;
  const DType dtype = op.x.dtype;
  return dispatch_device_float(dtype, [&](auto type) {
    using T = decltype(type);
    const bool slopes = span.size() == 6;
    const HeadGradsArgs<T> args{binding.read(op.x).as<T>(),
                                binding.read(op.w).as<T>(),
                                read_mixed<T>(binding, op.b, dtype),
                                binding.read(h.loss->label).as<int32_t>(),
                                binding.read(h.loss->tick).as<int32_t>(),
                                binding.write(h.loss->loss).as<double>(),
                                binding.write(h.loss->correct).as<int32_t>(),
                                binding.write(slopes ? h.activation->dx : h.grad_x->dx).as<T>(),
                                write_mixed<T>(binding, h.grad_w->dw, dtype),
                                write_mixed<T>(binding, h.grad_w->db, dtype),
                                slopes ? activation_of(h.activation->kind) : ActivationFn::none,
                                int(op.n()),
                                int(op.in()),
                                int(op.out()),
                                h.loss->scale,
                                h.grad->scale,
                                binding.read(h.grad->loss_scale).as<double>()};
    const size_t bytes =
        head_grads_workspace(args.n, args.in, args.out, size_of(accumulated(dtype)));
    const auto launched = [args, workspace = binding.workspace()](auto launch) {
      return [=](cudaStream_t stream) { return launch(args, workspace, stream); };
    };
    StepPart rows{{op.x, op.w, op.b, h.loss->label, h.grad->loss_scale},
                  {slopes ? h.activation->dx : h.grad_x->dx},
                  {},
                  false,
                  launched(launch_head_grads<T>)};
    StepPart sums{{h.loss->tick},
                  {h.grad_w->dw, h.grad_w->db, h.loss->loss, h.loss->correct},
                  {},
                  true,
                  launched(launch_head_grads_sum<T>)};
    return launch_in_order(binding, describe(span.op(0)), bytes, std::move(rows), std::move(sums));
  });
}

}  // namespace

KernelTable head_grads_kernels() {
  return concurrent({cuda_kernel("cuda.head_grads.plain", covers, prepare)});
}

}  // namespace ridgeline::cuda
