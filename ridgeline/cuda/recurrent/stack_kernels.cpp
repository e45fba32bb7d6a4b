#include "ridgeline/cuda/recurrent/kernels.h"
#include "ridgeline/cuda/recurrent/persistent_operands.h"

namespace ridgeline::cuda {
namespace {

using namespace recurrent;

// How many stacked layers there are from here on that are alike except for the first one's input.
size_t stacked_layers(const RemainingOps& rest) {
  const auto* first = rest.get<Rnn>(0);
  if (first == nullptr) return 0;
  size_t count = 1;
  for (; count < size_t(kMostLayers); ++count) {
    const auto* below = rest.get<Rnn>(count - 1);
    const auto* op = rest.get<Rnn>(count);
    if (op == nullptr || op->x.id != below->y.id || op->shape.cell != first->shape.cell ||
        op->shape.hidden != first->shape.hidden || op->shape.direction != first->shape.direction ||
        op->lengths.id != first->lengths.id) {
      break;
    }
  }
  return count;
}

PersistentLayout layout_of(const Rnn& op, size_t layers, const Runtime& runtime,
                           PersistentForm form) {
  const RnnShape& s = op.shape;
  return persistent_stack_layout(cell_of(s.cell), planes_of(op.x.dtype), int(layers), int(s.hidden),
                                 int(s.batch), cuda_runtime(runtime).sms(), form);
}

// Covers all layers, or as many of them as fit.
Cover covers_stack(const RemainingOps& rest, PersistentForm form) {
  size_t layers = stacked_layers(rest);
  if (layers < 2) return Cover::no("no two layers of equal width on each other");
  const Rnn& op = *rest.get<Rnn>(0);
  if (op.shape.direction != Direction::forward) return Cover::no("goes forward only");
  std::string reason;
  for (size_t i = 0; i < layers && reason.empty(); ++i) {
    reason = refuse_forward(*rest.get<Rnn>(i));
  }
  const RowProduct product = input_product(op, rest.program.precision);
  if (reason.empty()) {
    reason = refuse_product(cuda_runtime(rest.runtime), Multiplier::cublaslt, product);
  }
  if (!reason.empty()) return Cover::no(std::move(reason));
  PersistentLayout layout = layout_of(op, layers, rest.runtime, form);
  while (!layout.refusal.empty() && layers > 2) {
    layout = layout_of(op, --layers, rest.runtime, form);
  }
  if (!layout.refusal.empty()) return Cover::no(layout.refusal);
  WorkspaceSlices slices;
  ForwardMemory(op, layout, product, slices);
  return cover_unless({}, layers, slices.total());
}

template <typename T>
struct StackLaunches {
  Multiply of_x;
  PersistentStack<T> stack;
  PersistentLayout layout;

  cudaError_t run(cudaStream_t stream) const {
    if (const cudaError_t error = of_x(0, stream); error != cudaSuccess) return error;
    PersistentStack<T> part = stack;
    const int batch = stack.layers[0].sequence.batch;
    for (int first = 0; first < batch; first += layout.samples()) {
      for (PersistentForward<T>& layer : part.layers) {
        layer.first_sample = first;
        layer.samples = std::min(layout.samples(), batch - first);
      }
      const cudaError_t error = launch_persistent_stack<T>(part, layout, stream);
      if (error != cudaSuccess) return error;
    }
    return cudaSuccess;
  }
};

template <typename T>
StackLaunches<T> stack_launches(const Span& span, const Binding& binding, PersistentForm form) {
  const auto& op = span.get<Rnn>(0);
  StackLaunches<T> all{};
  all.layout = layout_of(op, span.size(), binding.runtime(), form);
  const RowProduct product = input_product(op, span.program.precision);
  WorkspaceSlices slices(binding.workspace());
  const ForwardMemory memory(op, all.layout, product, slices);
  all.of_x = prepare_input(op, 0, product, memory.from_x, memory.scratch, binding);
  for (size_t i = 0; i < span.size(); ++i) {
    const auto& layer = span.get<Rnn>(i);
    PersistentForward<T>& args = all.stack.layers[i] = forward_args<T>(layer, 0, binding);
    args.exchange = memory.pass.exchange;
    args.l2_workspace = memory.pass.l2_workspace;
    if (i == 0) {
      args.from_x = static_cast<float*>(memory.from_x);
    } else {
      args.w_ih = binding.read(layer.weights[0].w_ih).template as<T>();
    }
  }
  return all;
}

std::unique_ptr<Step> prepare_stack(const Span& span, const Binding& binding, PersistentForm form) {
  return dispatch_type(span.get<Rnn>(0).x.dtype, [&](auto type) {
    const auto launches = stack_launches<decltype(type)>(span, binding, form);
    return launch_step(binding, describe(span.op(0)),
                       [launches](cudaStream_t stream) { return launches.run(stream); });
  });
}

}  // namespace

KernelTable rnn_stack_kernels() {
  return {cuda_kernel("cuda.rnn_stack.wavefront", covers_stack, prepare_stack, PersistentForm::wide,
                      forward_traits(kPassPrecisions)),
          cuda_kernel("cuda.rnn_stack.wavefront_wgmma", covers_stack, prepare_stack,
                      PersistentForm::groups, forward_traits(kHalves))};
}

}  // namespace ridgeline::cuda
