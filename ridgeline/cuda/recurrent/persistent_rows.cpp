#include "ridgeline/cuda/recurrent/operands.h"
#include "ridgeline/cuda/recurrent/persistent.h"
#include "ridgeline/cuda/recurrent/product.h"
#include "ridgeline/cuda/recurrent/rows.h"

namespace ridgeline::cuda {
namespace {

using namespace recurrent;

std::string refuse_device(const Rest& rest, DType dtype) {
  if (size_of(dtype) != 2) return "takes bf16 and fp16 only";
  if (cuda_runtime(rest.runtime).architecture() != 90) return "is built for Hopper GPUs";
  return {};
}

std::string refuse_batch(const RnnShape& s) {
  if (s.batch <= kPersistentMostItems) return {};
  return fmt::format("takes at most {} items", kPersistentMostItems);
}

// from_x[rows, gates * H] = x . w_ih^T, of all steps
RowProduct input_product(const Rnn& op) {
  const RnnShape& s = op.shape;
  RowProduct p;
  p.dtype = op.x.dtype;
  p.result = DType::fp32;
  p.m = s.rows();
  p.n = s.gate_rows();
  p.k = s.in;
  p.a = {nullptr, s.in, false, 0};
  p.b = {nullptr, s.in, true, 0};
  p.d_pitch = s.gate_rows();
  return p;
}

struct ForwardMemory {
  void *from_x, *exchange, *scratch;
  ForwardMemory(const Rnn& op, const PersistentLayout& layout, const RowProduct& product,
                Pieces& pieces) {
    from_x = pieces.take(op.shape.rows() * op.shape.gate_rows(), DType::fp32);
    exchange = pieces.take(layout.exchange_bytes(int(op.shape.steps)));
    scratch = pieces.take(product_scratch(Multiplier::cublaslt, product));
  }
};

std::string refuse_forward(const Rest& rest, const Rnn& op) {
  const DType dtype = op.x.dtype;
  std::string reason = refuse_device(rest, dtype);
  Values floats{op.x, op.y, op.h0, op.c0, op.hT, op.cT, op.reserve};
  for (const RnnWeights& w : op.weights) {
    for (const Value& v :
         {w.w_ih, w.w_hh, unless_loose(w.b_ih, dtype), unless_loose(w.b_hh, dtype)}) {
      floats.push_back(v);
    }
  }
  if (reason.empty()) reason = refuse_floats(floats);
  if (reason.empty()) reason = refuse_shape(op.shape);
  if (reason.empty()) reason = refuse_batch(op.shape);
  return reason;
}

Cover covers_forward(const Rest& rest, bool wide) {
  const auto* op = rest.get<Rnn>(0);
  if (op == nullptr) return no_such_op(Rnn::kName);
  std::string reason = refuse_forward(rest, *op);
  if (!reason.empty()) return Cover::no(std::move(reason));
  const CudaRuntime& runtime = cuda_runtime(rest.runtime);
  const RowProduct product = input_product(*op);
  reason = refuse_product(runtime, Multiplier::cublaslt, product);
  if (!reason.empty()) return Cover::no(std::move(reason));
  const RnnShape& s = op->shape;
  const PersistentLayout layout = persistent_forward_layout(
      cell_of(s.cell), int(s.hidden), int(s.batch), runtime.processors(), wide);
  if (!layout.refusal.empty()) return Cover::no(layout.refusal);
  Pieces pieces;
  ForwardMemory(*op, layout, product, pieces);
  return cover_unless({}, 1, pieces.total());
}

// One direction.
template <typename T>
struct ForwardPassLaunches {
  Multiply of_x;
  PersistentForward<T> args;
  PersistentLayout layout;

  cudaError_t run(cudaStream_t stream) const {
    const cudaError_t error = of_x(0, stream);
    return error != cudaSuccess ? error : launch_persistent_forward<T>(args, layout, stream);
  }
};

// What a direction of a layer reads and writes, but for its workspace.
template <typename T>
PersistentForward<T> forward_args(const Rnn& op, int64_t d, const Binding& binding) {
  const RnnWeights& w = op.weights[size_t(d)];
  PersistentForward<T> args{};
  args.cell = cell_of(op.shape.cell);
  args.sequence = sequence_of(op.shape, d, binding.read(op.lengths));
  args.items = int(op.shape.batch);
  const auto state = [&](T* of_both) {
    return of_both != nullptr ? of_both + args.sequence.state_offset() : nullptr;
  };
  args.w_hh = binding.read(w.w_hh).as<T>();
  args.b_ih = loose_read<T>(binding, w.b_ih, op.x.dtype);
  args.b_hh = loose_read<T>(binding, w.b_hh, op.x.dtype);
  args.h0 = state(binding.read(op.h0).as<T>());
  args.c0 = state(binding.read(op.c0).as<T>());
  args.y = binding.write(op.y).as<T>();
  args.reserve = binding.write(op.reserve).as<T>();
  args.hT = state(binding.write(op.hT).as<T>());
  args.cT = state(binding.write(op.cT).as<T>());
  return args;
}

Multiply prepare_input(const Rnn& op, int64_t d, RowProduct product, const ForwardMemory& memory,
                       const Binding& binding) {
  product.a.data = binding.read(op.x).data;
  product.b.data = binding.read(op.weights[size_t(d)].w_ih).data;
  product.d = memory.from_x;
  return prepare_product(cuda_runtime(binding.runtime()), Multiplier::cublaslt, product,
                         memory.scratch, describe(Op(op)));
}

template <typename T>
ForwardPassLaunches<T> forward_pass(const Rnn& op, int64_t d, bool wide, const Binding& binding) {
  const RnnShape& s = op.shape;
  ForwardPassLaunches<T> pass{};
  pass.layout = persistent_forward_layout(cell_of(s.cell), int(s.hidden), int(s.batch),
                                          cuda_runtime(binding.runtime()).processors(), wide);
  const RowProduct product = input_product(op);
  Pieces pieces(binding.workspace());
  const ForwardMemory memory(op, pass.layout, product, pieces);
  pass.of_x = prepare_input(op, d, product, memory, binding);
  pass.args = forward_args<T>(op, d, binding);
  pass.args.from_x = static_cast<float*>(memory.from_x);
  pass.args.exchange = static_cast<uint4*>(memory.exchange);
  return pass;
}

Cover covers_backward(const Rest& rest, bool clusters) {
  const auto* op = rest.get<RnnGrad>(0);
  if (op == nullptr) return no_such_op(RnnGrad::kName);
  std::string reason = refuse_device(rest, op->dy.dtype);
  if (reason.empty()) {
    reason =
        refuse_floats({op->y, op->reserve, op->weights[0].w_hh, op->weights[1].w_hh, op->h0, op->c0,
                       op->dy, op->dhT, op->dcT, op->gate_gradients, op->dh0, op->dc0});
  }
  if (reason.empty()) reason = refuse_shape(op->shape);
  if (reason.empty()) reason = refuse_batch(op->shape);
  if (!reason.empty()) return Cover::no(std::move(reason));
  const RnnShape& s = op->shape;
  const PersistentLayout layout =
      persistent_backward_layout(cell_of(s.cell), int(s.hidden), int(s.batch),
                                 cuda_runtime(rest.runtime).processors(), clusters);
  if (!layout.refusal.empty()) return Cover::no(layout.refusal);
  Pieces pieces;
  pieces.take(layout.exchange_bytes(int(s.steps)));
  return cover_unless({}, 1, pieces.total());
}

template <typename T>
struct BackwardPassLaunches {
  PersistentBackward<T> args;
  PersistentLayout layout;

  cudaError_t run(cudaStream_t stream) const {
    return launch_persistent_backward<T>(args, layout, stream);
  }
};

template <typename T>
BackwardPassLaunches<T> backward_pass(const RnnGrad& op, int64_t d, bool clusters,
                                      const Binding& binding) {
  const RnnShape& s = op.shape;
  BackwardPassLaunches<T> pass{};
  pass.layout = persistent_backward_layout(cell_of(s.cell), int(s.hidden), int(s.batch),
                                           cuda_runtime(binding.runtime()).processors(), clusters);
  auto& args = pass.args;
  args.cell = cell_of(s.cell);
  args.sequence = sequence_of(s, d, binding.read(op.lengths));
  args.items = int(s.batch);
  const auto state = [&](T* of_both) {
    return of_both != nullptr ? of_both + args.sequence.state_offset() : nullptr;
  };
  args.y = binding.read(op.y).as<T>();
  args.reserve = binding.read(op.reserve).as<T>();
  args.h0 = state(binding.read(op.h0).as<T>());
  args.c0 = state(binding.read(op.c0).as<T>());
  args.dy = binding.read(op.dy).as<T>();
  args.w_hh = binding.read(op.weights[size_t(d)].w_hh).as<T>();
  args.dhT = state(binding.read(op.dhT).as<T>());
  args.dcT = state(binding.read(op.dcT).as<T>());
  args.gate_gradients = binding.write(op.gate_gradients).as<T>();
  args.dh0 = state(binding.write(op.dh0).as<T>());
  args.dc0 = state(binding.write(op.dc0).as<T>());
  Pieces pieces(binding.workspace());
  args.exchange = static_cast<uint4*>(pieces.take(pass.layout.exchange_bytes(int(s.steps))));
  return pass;
}

// One direction after the other.
template <typename Pass>
std::unique_ptr<Step> pass_step(const Span& span, const Binding& binding,
                                std::vector<Pass> passes) {
  return launch_step(binding, describe(span.op(0)),
                     [passes = std::move(passes)](cudaStream_t stream) {
                       for (const Pass& pass : passes) {
                         const cudaError_t error = pass.run(stream);
                         if (error != cudaSuccess) return error;
                       }
                       return cudaSuccess;
                     });
}

std::unique_ptr<Step> prepare_forward(const Span& span, const Binding& binding, bool wide) {
  const auto& op = span.get<Rnn>(0);
  return dispatch_device_half(op.x.dtype, [&](auto type) {
    std::vector<ForwardPassLaunches<decltype(type)>> passes;
    for (int64_t d = 0; d < op.shape.directions(); ++d) {
      passes.push_back(forward_pass<decltype(type)>(op, d, wide, binding));
    }
    return pass_step(span, binding, std::move(passes));
  });
}

std::unique_ptr<Step> prepare_backward(const Span& span, const Binding& binding, bool clusters) {
  const auto& op = span.get<RnnGrad>(0);
  return dispatch_device_half(op.dy.dtype, [&](auto type) {
    std::vector<BackwardPassLaunches<decltype(type)>> passes;
    for (int64_t d = 0; d < op.shape.directions(); ++d) {
      passes.push_back(backward_pass<decltype(type)>(op, d, clusters, binding));
    }
    return pass_step(span, binding, std::move(passes));
  });
}

}  // namespace

Table rnn_persistent_rows() {
  Table table;
  const auto add = [&](const char* name, auto covers, auto prepare, bool how) {
    table.push_back(cuda_row(
        name, [covers, how](const Rest& rest) { return covers(rest, how); },
        [prepare, how](const Span& span, const Binding& binding) {
          return prepare(span, binding, how);
        }));
  };
  add("cuda.rnn.persistent", covers_forward, prepare_forward, false);
  add("cuda.rnn.persistent_wide", covers_forward, prepare_forward, true);
  add("cuda.rnn_grad.persistent", covers_backward, prepare_backward, false);
  add("cuda.rnn_grad.persistent_clusters", covers_backward, prepare_backward, true);
  return table;
}

}  // namespace ridgeline::cuda
