#include <algorithm>
#include <vector>

#include "ridgeline/cuda/graph_order.h"
#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/kernels.h"
#include "ridgeline/cuda/plain/linear_spans.h"
#include "ridgeline/cuda/plain/update_operands.h"

namespace ridgeline::cuda {
namespace {

SgdSettings settings(const SgdUpdate& op, const Binding& binding) {
  return sgd_settings(op, binding);
}
AdamSettings settings(const AdamUpdate& op, const Binding& binding) {
  return {binding.read(op.lr).as<double>(),
          binding.read(op.step).as<int64_t>(),
          binding.read(op.tick).as<int32_t>(),
          binding.read(op.grad_scale).as<double>(),
          op.beta1,
          op.beta2,
          op.epsilon,
          op.weight_decay,
          op.decoupled};
}

// Whether two updates may share one launch. The attributes print every setting.
template <typename Update>
bool alike(const Update& a, const Update& b) {
  bool same = a.attributes() == b.attributes() && a.w.dtype == b.w.dtype && a.lr.id == b.lr.id &&
              a.tick.id == b.tick.id && a.grad_scale.id == b.grad_scale.id;
  if constexpr (requires { a.step; }) same = same && a.step.id == b.step.id;
  return same;
}

template <typename Update>
Cover covers_one(const RemainingOps& rest) {
  const auto* op = rest.get<Update>(0);
  if (op == nullptr) return no_such_op(Update::kName);
  return cover_unless(refuse_types(*op), 1);
}

// Takes as many consecutive updates as there are, because a launch costs more than updating a small
// tensor.
template <typename Update>
Cover covers_run(const RemainingOps& rest) {
  const auto* first = rest.get<Update>(0);
  if (first == nullptr) return no_such_op(Update::kName);
  size_t count = 0;
  while (count < size_t(kMostTensors)) {
    const auto* op = rest.get<Update>(count);
    if (op == nullptr || !alike(*first, *op)) break;
    if (std::string reason = refuse_types(*op); !reason.empty()) return Cover::no(reason);
    ++count;
  }
  return count >= 2 ? Cover::of(count) : Cover::no("the next op is no such update");
}

template <typename T>
cudaError_t launch(const SgdSettings& s, const UpdateTensors<T>& tensors, int,
                   cudaStream_t stream) {
  return launch_sgd(s, tensors, stream);
}
template <typename T>
cudaError_t launch(const AdamSettings& s, const UpdateTensors<T>& tensors, int most_blocks,
                   cudaStream_t stream) {
  return launch_adam(s, tensors, most_blocks, stream);
}

// The updates of some ops of a span, in one launch of at most this many blocks.
template <typename T, typename Update>
StepPart part_of(const std::vector<const Update*>& ops, const Binding& binding,
                 int most_blocks = std::numeric_limits<int>::max()) {
  StepPart part;
  UpdateTensors<T> tensors;
  const Update& first = *ops.front();
  part.reads = {first.lr, first.tick, first.grad_scale};
  if constexpr (requires { first.step; }) part.reads.push_back(first.step);
  for (const Update* op : ops) {
    tensors.tensor[tensors.size++] = tensor_of<T>(*op, binding);
    part.reads.push_back(op->dw);
    part.writes.insert(part.writes.end(), {op->w, op->copy});
    for (const Value& state : states(*op)) part.writes.push_back(state);
  }
  part.launch = [tensors, most_blocks, s = settings(first, binding)](cudaStream_t stream) {
    return launch(s, tensors, most_blocks, stream);
  };
  return part;
}

// A large tensor above others gets a part of its own with one block per SM: its update runs
// concurrently with the gradients of the layers below.
template <typename Update>
std::unique_ptr<Step> prepare_updates(const Span& span, const Binding& binding) {
  constexpr int64_t kLarge = int64_t{1} << 17;
  return dispatch_device_float(span.get<Update>(0).w.dtype, [&](auto type) {
    using T = decltype(type);
    const int sms = cuda_runtime(binding.runtime()).sms();
    std::vector<StepPart> parts;
    std::vector<const Update*> others;
    for (size_t i = 0; i < span.size(); ++i) {
      const auto& op = span.get<Update>(i);
      if (op.w.shape.numel() >= kLarge && i + 2 < span.size()) {  // more than its bias follows
        parts.push_back(part_of<T, Update>({&op}, binding, sms));
        parts.back().yields = true;
      } else {
        others.push_back(&op);
      }
    }
    if (!others.empty()) parts.push_back(part_of<T, Update>(others, binding));
    return launch_parts(binding, describe(span.op(0)), std::move(parts));
  });
}

size_t launches_of(const GlobalNorm& op) {
  return std::max<size_t>(1, (op.grads.size() + kMostTensors - 1) / kMostTensors);
}

Cover covers_norm(const RemainingOps& rest) {
  const auto* op = rest.get<GlobalNorm>(0);
  if (op == nullptr) return no_such_op(GlobalNorm::kName);
  if (op->grads.empty()) return Cover::no("there are no gradients");
  return cover_unless(refuse_floats(op->grads), 1, launches_of(*op) * kNormBlocks * sizeof(double));
}

std::unique_ptr<Step> prepare_norm(const Span& span, const Binding& binding) {
  const auto& op = span.get<GlobalNorm>(0);
  auto* partial = reinterpret_cast<double*>(binding.workspace());
  NormArgs finish;
  finish.partial = partial;
  finish.count = int(launches_of(op)) * kNormBlocks;
  finish.max_norm = op.max_norm;
  finish.norm = binding.write(op.norm).as<double>();
  finish.scale = binding.write(op.scale).as<double>();
  finish.clipped = binding.write(op.clipped).as<int64_t>();
  finish.loss_scale = binding.write(op.loss_scale).as<double>();
  finish.good = binding.write(op.good).as<int64_t>();
  finish.skipped = binding.write(op.skipped).as<int64_t>();
  finish.growth = op.growth;
  return dispatch_device_float(op.grads.front().dtype, [&](auto type) {
    using T = decltype(type);
    std::vector<UpdateTensors<T>> launches(launches_of(op));
    for (size_t i = 0; i < op.grads.size(); ++i) {
      UpdateTensors<T>& some = launches[i / kMostTensors];
      UpdateTensor<T> tensor;
      tensor.dw = binding.read(op.grads[i]).as<T>();
      tensor.count = op.grads[i].shape.numel();
      some.tensor[some.size++] = tensor;
    }
    return launch_step(binding, describe(span.op(0)),
                       [launches = std::move(launches), finish, partial](cudaStream_t stream) {
                         double* to = partial;
                         for (const UpdateTensors<T>& some : launches) {
                           const cudaError_t error = launch_square_sums(some, to, stream);
                           if (error != cudaSuccess) return error;
                           to += kNormBlocks;
                         }
                         return launch_norm(finish, stream);
                       });
  });
}

Cover covers_tick(const RemainingOps& rest) {
  return rest.get<Tick>(0) != nullptr ? Cover::of(1) : no_such_op(Tick::kName);
}

std::unique_ptr<Step> prepare_tick(const Span& span, const Binding& binding) {
  return launch_step(binding, describe(span.op(0)),
                     [tick = binding.write(span.get<Tick>(0).tick).as<int32_t>()](
                         cudaStream_t stream) { return launch_tick(tick, stream); });
}

}  // namespace

KernelTable plain_update_kernels() {
  return concurrent(
      {cuda_kernel("cuda.sgd_updates.plain", covers_run<SgdUpdate>, prepare_updates<SgdUpdate>),
       cuda_kernel("cuda.sgd_update.plain", covers_one<SgdUpdate>, prepare_updates<SgdUpdate>),
       cuda_kernel("cuda.adam_updates.plain", covers_run<AdamUpdate>, prepare_updates<AdamUpdate>),
       cuda_kernel("cuda.adam_update.plain", covers_one<AdamUpdate>, prepare_updates<AdamUpdate>),
       cuda_kernel("cuda.global_norm.plain", covers_norm, prepare_norm),
       cuda_kernel("cuda.tick.plain", covers_tick, prepare_tick)});
}

}  // namespace ridgeline::cuda
