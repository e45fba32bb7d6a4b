#include "ridgeline/cuda/recurrent/kernels.h"
#include "ridgeline/cuda/recurrent/persistent_operands.h"

namespace ridgeline::cuda {
namespace {

using namespace recurrent;

PersistentLayout forward_layout(const Rnn& op, const Runtime& runtime, PersistentForm form) {
  const RnnShape& s = op.shape;
  return persistent_forward_layout(cell_of(s.cell), planes_of(op.x.dtype), int(s.hidden),
                                   int(s.batch), cuda_runtime(runtime).sms(), form);
}
struct WeightStreaming {};  // a tag in place of a form
WeightStreamingLayout forward_layout(const Rnn& op, const Runtime& runtime, WeightStreaming) {
  const RnnShape& s = op.shape;
  return weight_streaming_forward_layout(cell_of(s.cell), planes_of(op.x.dtype), int(s.hidden),
                                         int(s.batch), cuda_runtime(runtime).sms());
}
PersistentLayout backward_layout(const RnnGrad& op, const Runtime& runtime, PersistentForm form) {
  const RnnShape& s = op.shape;
  return persistent_backward_layout(cell_of(s.cell), planes_of(op.dy.dtype), int(s.hidden),
                                    int(s.batch), cuda_runtime(runtime).sms(), form);
}

template <typename Form>
Cover covers_forward(const RemainingOps& rest, Form form) {
  const auto* op = rest.get<Rnn>(0);
  if (op == nullptr) return no_such_op(Rnn::kName);
  std::string reason = refuse_forward(*op);
  if (!reason.empty()) return Cover::no(std::move(reason));
  const CudaRuntime& runtime = cuda_runtime(rest.runtime);
  const RowProduct product = input_product(*op, rest.program.precision);
  reason = refuse_product(runtime, Multiplier::cublaslt, product);
  if (!reason.empty()) return Cover::no(std::move(reason));
  const auto layout = forward_layout(*op, rest.runtime, form);
  if (!layout.refusal.empty()) return Cover::no(layout.refusal);
  WorkspaceSlices slices;
  ForwardMemory(*op, layout, product, slices);
  return cover_unless({}, 1, slices.total());
}

// The pass of one direction.
template <typename T, typename Layout>
struct ForwardPassLaunches {
  Multiply of_x;
  PersistentForward<T> args;
  Layout layout;

  cudaError_t run(cudaStream_t stream) const {
    const cudaError_t error = of_x(0, stream);
    if (error != cudaSuccess) return error;
    const auto launch = [](const auto&... all) { return launch_persistent_forward<T>(all...); };
    return launch_all(args, layout, launch, stream);
  }
};

template <typename T, typename Form>
auto forward_pass(const Rnn& op, int64_t d, Form form, Precision precision,
                  const Binding& binding) {
  using Layout = decltype(forward_layout(op, binding.runtime(), form));
  ForwardPassLaunches<T, Layout> pass{};
  pass.layout = forward_layout(op, binding.runtime(), form);
  const RowProduct product = input_product(op, precision);
  WorkspaceSlices slices(binding.workspace());
  const ForwardMemory memory(op, pass.layout, product, slices);
  pass.of_x = prepare_input(op, d, product, memory.from_x, memory.scratch, binding);
  pass.args = forward_args<T>(op, d, binding);
  pass.args.from_x = static_cast<float*>(memory.from_x);
  pass.args.exchange = memory.pass.exchange;
  pass.args.l2_workspace = memory.pass.l2_workspace;
  return pass;
}

Cover covers_backward(const RemainingOps& rest, PersistentForm form) {
  const auto* op = rest.get<RnnGrad>(0);
  if (op == nullptr) return no_such_op(RnnGrad::kName);
  std::string reason = refuse_backward(*op);
  if (!reason.empty()) return Cover::no(std::move(reason));
  const PersistentLayout layout = backward_layout(*op, rest.runtime, form);
  if (!layout.refusal.empty()) return Cover::no(layout.refusal);
  WorkspaceSlices slices;
  PassMemory(op->shape, layout, slices);
  return cover_unless({}, 1, slices.total());
}

template <typename T>
struct BackwardPassLaunches {
  PersistentBackward<T> args;
  PersistentLayout layout;

  cudaError_t run(cudaStream_t stream) const {
    return launch_all(args, layout, launch_persistent_backward<T>, stream);
  }
};

template <typename T>
BackwardPassLaunches<T> backward_pass(const RnnGrad& op, int64_t d, PersistentForm form,
                                      const Binding& binding) {
  const RnnShape& s = op.shape;
  BackwardPassLaunches<T> pass{};
  pass.layout = backward_layout(op, binding.runtime(), form);
  pass.args = backward_args<T>(op, d, binding);
  WorkspaceSlices slices(binding.workspace());
  const PassMemory memory(s, pass.layout, slices);
  pass.args.exchange = memory.exchange;
  pass.args.l2_workspace = memory.l2_workspace;
  return pass;
}

template <typename Form>
std::unique_ptr<Step> prepare_forward(const Span& span, const Binding& binding, Form form) {
  const auto& op = span.get<Rnn>(0);
  const auto dispatch = [&](auto f) {
    if constexpr (std::is_same_v<Form, WeightStreaming>) {
      return dispatch_device_half(op.x.dtype, f);
    } else {
      return dispatch_type(op.x.dtype, f);
    }
  };
  return dispatch([&](auto type) {
    return directions_step(span, binding, op.shape, [&](int64_t d) {
      return forward_pass<decltype(type)>(op, d, form, span.program.precision, binding);
    });
  });
}

std::unique_ptr<Step> prepare_backward(const Span& span, const Binding& binding,
                                       PersistentForm form) {
  const auto& op = span.get<RnnGrad>(0);
  return dispatch_type(op.dy.dtype, [&](auto type) {
    return directions_step(span, binding, op.shape, [&](int64_t d) {
      return backward_pass<decltype(type)>(op, d, form, binding);
    });
  });
}

}  // namespace

KernelTable rnn_persistent_kernels() {
  const auto forward = [](const char* name, auto form, Precisions precisions = kHalves) {
    using Form = decltype(form);
    return cuda_kernel(name, covers_forward<Form>, prepare_forward<Form>, form,
                       forward_traits(precisions));
  };
  const auto backward = [](const char* name, PersistentForm form, Precisions precisions = kHalves) {
    return cuda_kernel(name, covers_backward, prepare_backward, form,
                       {.precisions = precisions, .least_arch = 90, .only_arch = true});
  };
  return {forward("cuda.rnn.persistent", PersistentForm::narrow, kPassPrecisions),
          forward("cuda.rnn.persistent_wide", PersistentForm::wide),
          forward("cuda.rnn.persistent_clusters", PersistentForm::clusters),
          forward("cuda.rnn.persistent_wgmma", PersistentForm::groups),
          forward("cuda.rnn.persistent_large", PersistentForm::large),
          forward("cuda.rnn.persistent_weight_streaming", WeightStreaming{}),
          backward("cuda.rnn_grad.persistent", PersistentForm::narrow, kPassPrecisions),
          backward("cuda.rnn_grad.persistent_wide", PersistentForm::wide),
          backward("cuda.rnn_grad.persistent_pairs", PersistentForm::pairs),
          backward("cuda.rnn_grad.persistent_clusters", PersistentForm::clusters, kPassPrecisions),
          backward("cuda.rnn_grad.persistent_large", PersistentForm::large)};
}

}  // namespace ridgeline::cuda
