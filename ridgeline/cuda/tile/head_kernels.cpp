#include "ridgeline/cuda/tile/head_kernels.h"

#include "ridgeline/cuda/plain/linear_spans.h"
#include "ridgeline/cuda/tile/product.h"
#include "ridgeline/cuda/workspace.h"

namespace ridgeline::cuda {
namespace {

// linear, softmax_xent, its gradient, linear_grad_x, linear_grad_w and the sgd_updates; then, if it
// follows, the gradient of the activation whose output the linear op reads.
struct HeadOps {
  const Linear* linear = nullptr;
  const SoftmaxXent* loss = nullptr;
  const LinearGradX* grad_x = nullptr;
  GradWithUpdates updates;
  const ActivationGrad* slope = nullptr;
  size_t ops = 0;
  std::vector<ValueId> inside;
  std::string refusal;

  const Value& dz() const { return slope != nullptr ? slope->dx : grad_x->dx; }
};

HeadOps match_head(const RemainingOps& rest) {
  HeadOps found;
  found.linear = rest.get<Linear>(0);
  found.loss = rest.get<SoftmaxXent>(1);
  const auto* grad = rest.get<SoftmaxXentGrad>(2);
  found.grad_x = rest.get<LinearGradX>(3);
  const auto no = [&](std::string why) {
    found.refusal = std::move(why);
    return found;
  };
  if (found.linear == nullptr || found.loss == nullptr || grad == nullptr ||
      found.grad_x == nullptr) {
    return no("the next ops are no last layer with its loss and gradients");
  }
  if (!found.loss->one_hot() || !grad->one_hot()) return no("classes are weighted or smoothed");
  const Linear& linear = *found.linear;
  if (found.loss->x.id != linear.y.id || grad->x.id != linear.y.id ||
      grad->label.id != found.loss->label.id || grad->scale != found.loss->scale ||
      found.grad_x->dy.id != grad->dx.id || found.grad_x->w.id != linear.w.id) {
    return no("loss and gradients are of different things");
  }
  found.updates = match_grad_with_updates({rest.program, rest.begin + 4, rest.runtime});
  if (!found.updates.refusal.empty()) return no(found.updates.refusal);
  const LinearGradW& grad_w = *found.updates.grad;
  if (grad_w.x.id != linear.x.id || grad_w.dy.id != grad->dx.id ||
      bool(grad_w.db) != bool(linear.b) || found.updates.w->w.id != linear.w.id ||
      (linear.b && found.updates.b->w.id != linear.b.id) || found.updates.w->grad_scale ||
      found.updates.w->tick.id != found.loss->tick.id) {
    return no("loss and gradients are of different things");
  }
  found.ops = 4 + found.updates.ops;
  found.inside = {linear.y.id, grad->dx.id, grad_w.dw.id};
  if (grad_w.db) found.inside.push_back(grad_w.db.id);
  const auto* slope = rest.get<ActivationGrad>(found.ops);
  if (slope != nullptr && slope->dy.id == found.grad_x->dx.id && saves_output(slope->kind) &&
      slope->saved.id == linear.x.id && rest.dead_after(slope->dy, found.ops + 1)) {
    found.slope = slope;
    found.inside.push_back(slope->dy.id);
    ++found.ops;
  }
  for (const ValueId id : found.inside) {
    if (!rest.dead_after(rest.program.info(id).value, found.ops)) {
      return no(fmt::format("{} is wanted later", rest.program.info(id).name));
    }
  }
  return found;
}

std::string refuse(const HeadOps& head) {
  if (!head.refusal.empty()) return head.refusal;
  const Linear& op = *head.linear;
  if (std::string reason = refuse_tile_type(op.x.dtype); !reason.empty()) return reason;
  if (op.out() > kHeadMostClasses) return fmt::format("takes up to {} outputs", kHeadMostClasses);
  Values values = head.updates.values;
  values.insert(values.end(), {op.x, op.w, op.b, op.y, head.grad_x->dx, head.dz()});
  if (std::string reason = refuse_floats(values); !reason.empty()) return reason;
  return refuse_large({op.n(), op.in(), op.out()});
}

HeadLayout layout_of(const Linear& op) {
  return head_layout(int(op.n()), int(op.in()), int(op.out()), size_of(op.x.dtype));
}

// The slices of the workspace: each block's sums, losses and correct predictions.
struct HeadWorkspace {
  void* partial;
  double* loss;
  int32_t* correct;

  HeadWorkspace(const HeadLayout& layout, const Linear& op, WorkspaceSlices& slices) {
    const auto parts = size_t(layout.parts);
    partial =
        slices.take(parts * size_t(layout.sums(int(op.in()), int(op.out()))) * size_of(op.x.dtype));
    loss = slices.take_of<double>(parts);
    correct = slices.take_of<int32_t>(parts);
  }
};

Cover covers(const RemainingOps& rest) {
  const HeadOps head = match_head(rest);
  if (std::string reason = refuse(head); !reason.empty()) return Cover::no(reason);
  const HeadLayout layout = layout_of(*head.linear);
  if (layout.parts == 0) return Cover::no("the layer does not fit on chip");
  Cover cover = Cover::of(head.ops);
  cover.skips = head.inside;
  WorkspaceSlices counted;
  HeadWorkspace(layout, *head.linear, counted);
  cover.workspace = counted.total();
  return cover;
}

template <typename T>
std::unique_ptr<Step> make(const Span& span, const Binding& binding, const HeadOps& head) {
  const Linear& op = *head.linear;
  const HeadLayout layout = layout_of(op);
  WorkspaceSlices slices(binding.workspace());
  const HeadWorkspace workspace(layout, op, slices);
  HeadArgs<T> args{};
  args.h = binding.read(op.x).template as<T>();
  args.w = binding.read(op.w).template as<T>();
  args.b = binding.read(op.b).template as<T>();
  args.label = binding.read(head.loss->label).template as<int32_t>();
  args.dz = binding.write(head.dz()).template as<T>();
  args.n = int(op.n());
  args.hidden = int(op.in());
  args.classes = int(op.out());
  args.activation = head.slope != nullptr ? activation_of(head.slope->kind) : ActivationFn::none;
  args.scale = head.loss->scale;
  args.rows = layout.rows;
  args.partial = static_cast<T*>(workspace.partial);
  args.loss = workspace.loss;
  args.correct = workspace.correct;

  HeadSums<T> sums{};
  sums.parts = layout.parts;
  sums.hidden = args.hidden;
  sums.classes = args.classes;
  sums.partial = args.partial;
  sums.part_loss = args.loss;
  sums.part_correct = args.correct;
  sums.w = binding.write(head.updates.w->w).template as<T>();
  sums.w_momentum = binding.write(head.updates.w->m).template as<T>();
  if (head.updates.b != nullptr) {
    sums.b = binding.write(head.updates.b->w).template as<T>();
    sums.b_momentum = binding.write(head.updates.b->m).template as<T>();
  }
  sums.sgd = sgd_settings(*head.updates.w, binding);
  sums.scale = head.loss->scale;
  sums.loss = binding.write(head.loss->loss).template as<double>();
  sums.correct = binding.write(head.loss->correct).template as<int32_t>();
  return launch_step(binding, describe(span.op(0)), [args, sums, layout](cudaStream_t stream) {
    const cudaError_t error = launch_head(args, layout, stream);
    return error != cudaSuccess ? error : launch_head_sums(sums, {}, layout, stream);
  });
}

std::unique_ptr<Step> prepare(const Span& span, const Binding& binding) {
  const HeadOps head = match_head({span.program, span.begin, binding.runtime()});
  return head.linear->x.dtype == DType::fp64 ? make<double>(span, binding, head)
                                             : make<float>(span, binding, head);
}

}  // namespace

KernelTable head_kernels() { return {cuda_kernel("cuda.head_sgd.fused", covers, prepare, kTiles)}; }

}  // namespace ridgeline::cuda
