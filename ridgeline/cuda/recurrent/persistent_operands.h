#pragma once

#include <algorithm>

#include "ridgeline/cuda/recurrent/operands.h"
#include "ridgeline/cuda/recurrent/persistent.h"
#include "ridgeline/cuda/recurrent/product.h"
#include "ridgeline/cuda/recurrent/weight_streaming.h"

// Helpers that the kernels of persistent passes share.
namespace ridgeline::cuda::recurrent {

// The precisions of the passes that keep weights on chip. Before a forward pass, cuBLASLt computes
// the products with x.
inline constexpr Precisions kPassPrecisions = kStoredInFp32 | kHalves;
constexpr Traits forward_traits(Precisions precisions) {
  return {
      .precisions = precisions, .least_arch = 90, .only_arch = true, .library = Library::cublaslt};
}

inline std::string refuse_pass(const RnnShape& s, DType dtype) {
  if (dtype == DType::fp64) return "takes fp32, bf16 and fp16 only";
  if (s.rows() > (1 << 29)) return "more than 2^29 steps of all samples";
  return {};
}

// The number of bf16 planes in which the tensor cores multiply a value.
inline int planes_of(DType dtype) { return dtype == DType::fp32 ? 3 : 1; }

// Calls f with the device type.
template <typename F>
decltype(auto) dispatch_type(DType dtype, F&& f) {
  return dtype == DType::fp32 ? f(float{}) : dispatch_device_half(dtype, f);
}

// Runs all samples, in as many launches as they need.
template <typename Args, typename Layout, typename Launch>
cudaError_t launch_all(Args args, const Layout& layout, Launch launch, cudaStream_t stream) {
  const int batch = args.sequence.batch;
  for (args.first_sample = 0; args.first_sample < batch; args.first_sample += layout.samples()) {
    args.samples = std::min(layout.samples(), batch - args.first_sample);
    if (const cudaError_t error = launch(args, layout, stream); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

struct PassMemory {
  uint4 *exchange, *l2_workspace;
  template <typename Layout>
  PassMemory(const RnnShape& s, const Layout& layout, WorkspaceSlices& slices) {
    exchange = static_cast<uint4*>(slices.take(layout.exchange_bytes(int(s.steps))));
    l2_workspace = static_cast<uint4*>(slices.take(layout.l2_workspace_bytes));
  }
};

// from_x[rows, gates * H] = x . w_ih^T, for all timesteps
inline RowProduct input_product(const Rnn& op, Precision precision) {
  const RnnShape& s = op.shape;
  RowProduct p;
  p.dtype = op.x.dtype;
  p.precision = precision;
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
  void *from_x, *scratch;
  PassMemory pass;
  template <typename Layout>
  ForwardMemory(const Rnn& op, const Layout& layout, const RowProduct& product,
                WorkspaceSlices& slices)
      : pass(op.shape, layout, slices) {
    from_x = slices.take(op.shape.rows() * op.shape.gate_rows(), DType::fp32);
    scratch = slices.take(product_scratch(Multiplier::cublaslt, product));
  }
};

inline std::string refuse_forward(const Rnn& op) {
  std::string reason = refuse_pass(op.shape, op.x.dtype);
  if (reason.empty()) reason = refuse_floats(floats_of(op));
  if (reason.empty()) reason = refuse_shape(op.shape);
  return reason;
}

// Returns what a direction of a layer reads and writes, except for its workspace.
template <typename T>
PersistentForward<T> forward_args(const Rnn& op, int64_t d, const Binding& binding) {
  const RnnWeights& w = op.weights[size_t(d)];
  PersistentForward<T> args{};
  args.cell = cell_of(op.shape.cell);
  args.sequence = sequence_of(op.shape, d, binding.read(op.lengths));
  const auto state = states_of<T>(args.sequence);
  args.w_hh = binding.read(w.w_hh).as<T>();
  args.b_ih = read_mixed<T>(binding, w.b_ih, op.x.dtype);
  args.b_hh = read_mixed<T>(binding, w.b_hh, op.x.dtype);
  args.h0 = state(binding.read(op.h0).as<T>());
  args.c0 = state(binding.read(op.c0).as<T>());
  args.y = binding.write(op.y).as<T>();
  args.reserve = binding.write(op.reserve).as<T>();
  args.hT = state(binding.write(op.hT).as<T>());
  args.cT = state(binding.write(op.cT).as<T>());
  return args;
}

inline std::string refuse_backward(const RnnGrad& op) {
  std::string reason = refuse_pass(op.shape, op.dy.dtype);
  if (reason.empty()) reason = refuse_floats(floats_of(op));
  if (reason.empty()) reason = refuse_shape(op.shape);
  return reason;
}

template <typename T>
PersistentBackward<T> backward_args(const RnnGrad& op, int64_t d, const Binding& binding) {
  PersistentBackward<T> args{};
  args.cell = cell_of(op.shape.cell);
  args.sequence = sequence_of(op.shape, d, binding.read(op.lengths));
  const auto state = states_of<T>(args.sequence);
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
  return args;
}

inline Multiply prepare_input(const Rnn& op, int64_t d, RowProduct product, void* from_x,
                              void* scratch, const Binding& binding) {
  product.a.data = binding.read(op.x).data;
  product.b.data = binding.read(op.weights[size_t(d)].w_ih).data;
  product.d = from_x;
  return prepare_product(cuda_runtime(binding.runtime()), Multiplier::cublaslt, product, scratch,
                         describe(Op(op)));
}

}  // namespace ridgeline::cuda::recurrent
