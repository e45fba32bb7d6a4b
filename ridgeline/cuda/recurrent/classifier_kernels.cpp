// "cuda.rnn_classifier.batch_parallel": a classifier of sequences, forward and backward.
#include <functional>
#include <optional>

#include "ridgeline/cuda/plain/linear_spans.h"
#include "ridgeline/cuda/plain/update_operands.h"
#include "ridgeline/cuda/recurrent/classifier.h"
#include "ridgeline/cuda/recurrent/kernels.h"
#include "ridgeline/cuda/recurrent/loop_kernels.h"
#include "ridgeline/cuda/recurrent/persistent_operands.h"
#include "ridgeline/cuda/recurrent/split_k_operands.h"

namespace ridgeline::cuda {
namespace {

using namespace recurrent;

struct Ops {
  const Rnn* rnn = nullptr;
  const SelectTimestep* select = nullptr;
  const Linear* linear = nullptr;
  const SoftmaxXent* loss = nullptr;
  const SoftmaxXentGrad* grad = nullptr;
  const LinearGradX* grad_x = nullptr;
  const LinearGradW* grad_w = nullptr;
  const SelectTimestepGrad* select_grad = nullptr;
  const RnnGrad* rnn_grad = nullptr;
  const RnnGradW* rnn_grad_w = nullptr;
  std::vector<const SgdUpdate*> updates{};  // of the last layer, if they follow its gradients

  size_t count() const { return 10 + updates.size(); }

  bool complete() const {
    return rnn != nullptr && select != nullptr && linear != nullptr && loss != nullptr &&
           grad != nullptr && grad_x != nullptr && grad_w != nullptr && select_grad != nullptr &&
           rnn_grad != nullptr && rnn_grad_w != nullptr;
  }
  // Whether each op works on what another leaves.
  bool connected() const {
    const RnnDirections &w = rnn->weights, &same = rnn_grad->weights;
    return select->x.id == rnn->y.id && linear->x.id == select->y.id &&
           loss->x.id == linear->y.id && grad->x.id == linear->y.id &&
           grad->label.id == loss->label.id && grad_x->dy.id == grad->dx.id &&
           grad_x->w.id == linear->w.id && grad_w->x.id == select->y.id &&
           grad_w->dy.id == grad->dx.id && select_grad->dy.id == grad_x->dx.id &&
           select_grad->at == select->at && rnn_grad->dy.id == select_grad->dx.id &&
           rnn_grad->y.id == rnn->y.id && rnn_grad->reserve.id == rnn->reserve.id &&
           same[0].w_hh.id == w[0].w_hh.id && rnn_grad->h0.id == rnn->h0.id &&
           rnn_grad->c0.id == rnn->c0.id && rnn_grad_w->x.id == rnn->x.id &&
           rnn_grad_w->y.id == rnn->y.id && rnn_grad_w->h0.id == rnn->h0.id &&
           rnn_grad_w->gate_gradients.id == rnn_grad->gate_gradients.id;
  }
  // Returns the values that no op but these reads.
  Values inside() const { return {select->y, linear->y, grad->dx, grad_x->dx, select_grad->dx}; }
};

std::optional<Ops> find(const RemainingOps& rest) {
  Ops ops;
  ops.rnn = rest.get<Rnn>(0);
  ops.select = rest.get<SelectTimestep>(1);
  ops.linear = rest.get<Linear>(2);
  ops.loss = rest.get<SoftmaxXent>(3);
  ops.grad = rest.get<SoftmaxXentGrad>(4);
  ops.grad_x = rest.get<LinearGradX>(5);
  ops.grad_w = rest.get<LinearGradW>(6);
  if (ops.grad_w == nullptr) return {};
  size_t at = 7;
  for (; const auto* update = rest.get<SgdUpdate>(at); ++at) {
    const bool own = update->dw.id == ops.grad_w->dw.id || update->dw.id == ops.grad_w->db.id;
    if (!own || at == 9) return {};
    ops.updates.push_back(update);
  }
  ops.select_grad = rest.get<SelectTimestepGrad>(at);
  ops.rnn_grad = rest.get<RnnGrad>(at + 1);
  ops.rnn_grad_w = rest.get<RnnGradW>(at + 2);
  if (!ops.complete() || !ops.connected()) return {};
  return ops;
}

BatchParallelLayout layout_of(const Ops& ops) {
  const RnnShape& s = ops.rnn->shape;
  return classifier_layout(cell_of(s.cell), planes_of(ops.rnn->x.dtype), int(s.steps), int(s.in),
                           int(s.hidden));
}

std::string refuse_operands(const Ops& ops) {
  const DType dtype = ops.rnn->x.dtype;
  std::string reason = recurrent::refuse_forward(*ops.rnn);
  if (reason.empty()) reason = recurrent::refuse_backward(*ops.rnn_grad);
  if (reason.empty()) reason = refuse_split_k(*ops.rnn_grad_w);
  if (reason.empty()) {
    reason =
        refuse_floats({ops.rnn->x, ops.linear->w, unless_mixed(ops.linear->b, dtype),
                       unless_mixed(ops.grad_w->dw, dtype), unless_mixed(ops.grad_w->db, dtype)});
  }
  for (const SgdUpdate* update : ops.updates) {
    if (reason.empty()) reason = refuse_types(*update);
    if (reason.empty() && update->attributes() != ops.updates.front()->attributes()) {
      reason = "the updates differ";
    }
  }
  return reason;
}

std::string refuse_shape(const Ops& ops) {
  if (ops.rnn->shape.direction == Direction::both) return "takes one direction only";
  if (ops.rnn->lengths || ops.select->lengths) return "takes samples of one length only";
  if (!ops.loss->one_hot() || !ops.grad->one_hot()) return "takes no class weights or smoothing";
  const Linear& linear = *ops.linear;
  if (linear.out() > kMostClasses) return fmt::format("takes up to {} classes", kMostClasses);
  if (ops.loss->x.shape[0] != linear.n() || ops.loss->x.shape[1] != linear.out()) {
    return "takes one target a sample";
  }
  return {};
}

// The workspace: that of the product of x unless the blocks take x, and what the head leaves.
struct Memory {
  void *from_x = nullptr, *scratch = nullptr, *gradients;
  SampleScore* scores;
  Memory(const Ops& ops, const BatchParallelLayout& layout, const RowProduct& product,
         WorkspaceSlices& slices) {
    const RnnShape& s = ops.rnn->shape;
    if (!layout.takes_x) {
      from_x = slices.take(s.rows() * s.gate_rows(), DType::fp32);
      scratch = slices.take(product_scratch(Multiplier::cublaslt, product));
    }
    gradients = slices.take(s.batch * ops.linear->out(), ops.rnn->x.dtype);
    scores = slices.take_of<SampleScore>(size_t(s.batch));
  }
};

Cover covers(const RemainingOps& rest) {
  const auto ops = find(rest);
  if (!ops) return Cover::no("the next ops are no classifier of sequences and its gradients");
  std::string reason = refuse_operands(*ops);
  if (reason.empty()) reason = refuse_shape(*ops);
  if (!reason.empty()) return Cover::no(std::move(reason));
  const BatchParallelLayout layout = layout_of(*ops);
  if (!layout.refusal.empty()) return Cover::no(layout.refusal);
  const RowProduct product = input_product(*ops->rnn, rest.program.precision);
  if (!layout.takes_x) {
    reason = refuse_product(cuda_runtime(rest.runtime), Multiplier::cublaslt, product);
    if (!reason.empty()) return Cover::no(std::move(reason));
  }
  Cover cover = Cover::of(ops->count());
  for (const Value& value : ops->inside()) {
    if (!rest.dead_after(value, ops->count())) return Cover::no("a value between is needed later");
    cover.skips.push_back(value.id);
  }
  WorkspaceSlices slices;
  Memory(*ops, layout, product, slices);
  cover.workspace = slices.total();
  return cover;
}

template <typename T>
ClassifierHead<T> head_of(const Ops& ops, const Memory& memory, const Binding& binding) {
  const Linear& linear = *ops.linear;
  const RnnShape& s = ops.rnn->shape;
  const int64_t at = ops.select->at, time = at >= 0 ? at : std::max<int64_t>(s.steps + at, 0);
  ClassifierHead<T> head{};
  head.classes = int(linear.out());
  head.step = int(s.reverse(0) ? s.steps - 1 - time : time);
  head.w = binding.read(linear.w).as<T>();
  head.b = read_mixed<T>(binding, linear.b, linear.x.dtype);
  head.label = binding.read(ops.loss->label).as<int32_t>();
  head.scale = ops.grad->scale;
  head.loss_scale = binding.read(ops.grad->loss_scale).as<double>();
  head.gradients = static_cast<T*>(memory.gradients);
  head.scores = memory.scores;
  return head;
}

template <typename T>
SplitKHead<T> head_gradients(const Ops& ops, const ClassifierHead<T>& of, const Binding& binding) {
  const RnnShape& s = ops.rnn->shape;
  const DType dtype = ops.rnn->x.dtype;
  SplitKHead<T> head{};
  head.classes = of.classes;
  head.time = int(s.reverse(0) ? s.steps - 1 - of.step : of.step);
  head.gradients = of.gradients;
  head.dw = write_mixed<T>(binding, ops.grad_w->dw, dtype);
  head.db = write_mixed<T>(binding, ops.grad_w->db, dtype);
  head.scores = of.scores;
  head.tick = binding.read(ops.loss->tick).as<int32_t>();
  head.loss = binding.write(ops.loss->loss).as<double>();
  head.correct = binding.write(ops.loss->correct).as<int32_t>();
  head.loss_scale = ops.loss->scale;
  return head;
}

// The launch of the updates, if there are any.
std::function<cudaError_t(cudaStream_t)> updates_of(const Ops& ops, const Binding& binding) {
  if (ops.updates.empty()) return [](cudaStream_t) { return cudaSuccess; };
  const SgdUpdate& first = *ops.updates.front();
  return dispatch_device_float(
      first.w.dtype, [&](auto type) -> std::function<cudaError_t(cudaStream_t)> {
        UpdateTensors<decltype(type)> tensors;
        for (const SgdUpdate* update : ops.updates) {
          tensors.tensor[tensors.size++] = tensor_of<decltype(type)>(*update, binding);
        }
        return [tensors, settings = sgd_settings(first, binding)](cudaStream_t stream) {
          return launch_sgd(settings, tensors, stream);
        };
      });
}

template <typename T>
std::unique_ptr<Step> make(const Span& span, const Binding& binding, const Ops& ops) {
  const Rnn& op = *ops.rnn;
  const BatchParallelLayout layout = layout_of(ops);
  const RowProduct product = input_product(op, span.program.precision);
  WorkspaceSlices slices(binding.workspace());
  const Memory memory(ops, layout, product, slices);
  Classifier<T> args{};
  args.forward.pass = forward_args<T>(op, 0, binding);
  args.forward.in = int(op.shape.in);
  Multiply of_x;
  if (layout.takes_x) {
    args.forward.x = binding.read(op.x).as<T>();
    args.forward.pass.w_ih = binding.read(op.weights[0].w_ih).template as<T>();
  } else {
    of_x = prepare_input(op, 0, product, memory.from_x, memory.scratch, binding);
    args.forward.pass.from_x = static_cast<float*>(memory.from_x);
  }
  // Nothing reads the gradient of y but this kernel, which keeps it on chip.
  args.backward = backward_args<T>(*ops.rnn_grad, 0, binding);
  args.head = head_of<T>(ops, memory, binding);
  SplitKWeights<T> weights = split_k_args<T>(*ops.rnn_grad_w, 0, binding);
  weights.head = head_gradients(ops, args.head, binding);
  const auto updates = updates_of(ops, binding);
  return launch_step(binding, describe(span.op(0)), [=](cudaStream_t stream) {
    if (of_x) RIDGELINE_RETURN_IF_FAILED(of_x(0, stream));
    RIDGELINE_RETURN_IF_FAILED(launch_classifier<T>(args, layout, stream));
    RIDGELINE_RETURN_IF_FAILED(launch_split_k_weights<T>(weights, stream));
    return updates(stream);
  });
}

std::unique_ptr<Step> prepare(const Span& span, const Binding& binding) {
  const Ops ops = *find({span.program, span.begin, binding.runtime()});
  return dispatch_type(ops.rnn->x.dtype,
                       [&](auto type) { return make<decltype(type)>(span, binding, ops); });
}

}  // namespace

KernelTable rnn_classifier_kernels() {
  return {cuda_kernel("cuda.rnn_classifier.batch_parallel", covers, prepare,
                      forward_traits(kPassPrecisions))};
}

}  // namespace ridgeline::cuda
