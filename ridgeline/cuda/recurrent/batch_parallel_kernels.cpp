#include "ridgeline/cuda/recurrent/batch_parallel.h"
#include "ridgeline/cuda/recurrent/kernels.h"
#include "ridgeline/cuda/recurrent/persistent_operands.h"

namespace ridgeline::cuda {
namespace {

using namespace recurrent;

BatchParallelLayout forward_layout(const Rnn& op) {
  const RnnShape& s = op.shape;
  return batch_parallel_forward_layout(cell_of(s.cell), planes_of(op.x.dtype), int(s.steps),
                                       int(s.in), int(s.hidden));
}
BatchParallelLayout backward_layout(const RnnGrad& op) {
  const RnnShape& s = op.shape;
  return batch_parallel_backward_layout(cell_of(s.cell), planes_of(op.dy.dtype), int(s.hidden));
}

// The memory of the product of x, which is needed unless the blocks take x themselves.
struct InputMemory {
  void *from_x = nullptr, *scratch = nullptr;
  InputMemory(const Rnn& op, const BatchParallelLayout& layout, const RowProduct& product,
              WorkspaceSlices& slices) {
    if (layout.takes_x) return;
    from_x = slices.take(op.shape.rows() * op.shape.gate_rows(), DType::fp32);
    scratch = slices.take(product_scratch(Multiplier::cublaslt, product));
  }
};

Cover covers_forward(const RemainingOps& rest) {
  const auto* op = rest.get<Rnn>(0);
  if (op == nullptr) return no_such_op(Rnn::kName);
  std::string reason = recurrent::refuse_forward(*op);
  if (!reason.empty()) return Cover::no(std::move(reason));
  const BatchParallelLayout layout = forward_layout(*op);
  if (!layout.refusal.empty()) return Cover::no(layout.refusal);
  const RowProduct product = input_product(*op, rest.program.precision);
  if (!layout.takes_x) {
    reason = refuse_product(cuda_runtime(rest.runtime), Multiplier::cublaslt, product);
    if (!reason.empty()) return Cover::no(std::move(reason));
  }
  WorkspaceSlices slices;
  InputMemory(*op, layout, product, slices);
  return cover_unless({}, 1, slices.total());
}

// The pass of one direction.
template <typename T>
struct ForwardLaunches {
  Multiply of_x;  // none if the blocks take x
  BatchParallelForward<T> args;
  BatchParallelLayout layout;

  cudaError_t run(cudaStream_t stream) const {
    if (of_x) {
      if (const cudaError_t error = of_x(0, stream); error != cudaSuccess) return error;
    }
    return launch_batch_parallel_forward<T>(args, layout, stream);
  }
};

template <typename T>
ForwardLaunches<T> forward_launches(const Rnn& op, int64_t d, Precision precision,
                                    const Binding& binding) {
  ForwardLaunches<T> all{};
  all.layout = forward_layout(op);
  all.args.pass = forward_args<T>(op, d, binding);
  all.args.in = int(op.shape.in);
  if (all.layout.takes_x) {
    all.args.x = binding.read(op.x).as<T>();
    all.args.pass.w_ih = binding.read(op.weights[size_t(d)].w_ih).template as<T>();
    return all;
  }
  const RowProduct product = input_product(op, precision);
  WorkspaceSlices slices(binding.workspace());
  const InputMemory memory(op, all.layout, product, slices);
  all.of_x = prepare_input(op, d, product, memory.from_x, memory.scratch, binding);
  all.args.pass.from_x = static_cast<float*>(memory.from_x);
  return all;
}

std::unique_ptr<Step> prepare_forward(const Span& span, const Binding& binding) {
  const auto& op = span.get<Rnn>(0);
  return dispatch_type(op.x.dtype, [&](auto type) {
    return directions_step(span, binding, op.shape, [&](int64_t d) {
      return forward_launches<decltype(type)>(op, d, span.program.precision, binding);
    });
  });
}

Cover covers_backward(const RemainingOps& rest) {
  const auto* op = rest.get<RnnGrad>(0);
  if (op == nullptr) return no_such_op(RnnGrad::kName);
  std::string reason = recurrent::refuse_backward(*op);
  if (reason.empty()) reason = backward_layout(*op).refusal;
  return cover_unless(std::move(reason), 1, 0);
}

template <typename T>
struct BackwardLaunches {
  PersistentBackward<T> args;
  BatchParallelLayout layout;

  cudaError_t run(cudaStream_t stream) const {
    return launch_batch_parallel_backward<T>(args, layout, stream);
  }
};

std::unique_ptr<Step> prepare_backward(const Span& span, const Binding& binding) {
  const auto& op = span.get<RnnGrad>(0);
  return dispatch_type(op.dy.dtype, [&](auto type) {
    using T = decltype(type);
    return directions_step(span, binding, op.shape, [&](int64_t d) {
      return BackwardLaunches<T>{backward_args<T>(op, d, binding), backward_layout(op)};
    });
  });
}

}  // namespace

KernelTable rnn_batch_parallel_kernels() {
  return {cuda_kernel("cuda.rnn.batch_parallel", covers_forward, prepare_forward,
                      forward_traits(kPassPrecisions)),
          cuda_kernel("cuda.rnn_grad.batch_parallel", covers_backward, prepare_backward,
                      {.precisions = kPassPrecisions, .least_arch = 90, .only_arch = true})};
}

}  // namespace ridgeline::cuda
