#include "ridgeline/cuda/recurrent/kernels.h"
#include "ridgeline/cuda/recurrent/loop_kernels.h"

namespace ridgeline::cuda {
namespace {

using namespace recurrent;

// dh[B, H] (+)= gate gradients[B, gates * H] . w_hh
RowProduct back_product(const RnnGrad& op, const LoopOptions& options, Precision precision) {
  const RnnShape& s = op.shape;
  RowProduct p;
  p.dtype = op.dy.dtype;
  p.result = accumulated(op.dy.dtype);
  p.precision = precision;
  p.m = s.batch;
  p.n = s.hidden;
  p.k = options.gate_products ? s.hidden : s.gate_rows();
  p.a = {nullptr, s.gate_rows(), false, 0};
  p.b = options.transposed ? Factor{nullptr, s.gate_rows(), true, 0}
                           : Factor{nullptr, s.hidden, false, 0};
  p.d_pitch = s.hidden;
  // For gru, and for samples that have ended, dh also has a part that bypasses the product.
  p.adds = options.gate_products || s.cell == CellKind::gru || op.lengths;
  return p;
}

struct BackwardMemory {
  void *dh, *dc, *compact, *w_hh_t, *scratch;

  BackwardMemory(const RnnGrad& op, const LoopOptions& options, const RowProduct& product,
                 WorkspaceSlices& slices) {
    const RnnShape& s = op.shape;
    const DType dtype = op.dy.dtype, accumulator = accumulated(dtype);
    dh = slices.take(s.batch * s.hidden, accumulator);
    dc = s.cell == CellKind::lstm ? slices.take(s.batch * s.hidden, accumulator) : nullptr;
    compact = slices.take(s.batch * s.gate_rows(), dtype);
    w_hh_t = options.transposed ? slices.take(s.gate_rows() * s.hidden, dtype) : nullptr;
    scratch = slices.take(product_scratch(options.by, product));
  }
};

// The backward pass of one direction.
template <typename T>
struct BackwardLoop {
  BackwardArgs<T> args;
  const T *dhT, *dcT, *w_hh;
  T *w_hh_t, *dh0, *dc0;
  std::vector<Multiply> products;

  cudaError_t run(cudaStream_t stream) const {
    const Sequence& s = args.sequence;
    const int64_t count = int64_t(s.batch) * s.hidden;
    RIDGELINE_RETURN_IF_FAILED(launch_widen_state<T>(dhT, args.dh, count, stream));
    RIDGELINE_RETURN_IF_FAILED(launch_widen_state<T>(dcT, args.dc, count, stream));
    if (w_hh_t != nullptr) {
      RIDGELINE_RETURN_IF_FAILED(
          launch_transpose<T>(w_hh, w_hh_t, cell_gates(args.cell) * s.hidden, s.hidden, 1, stream));
    }
    for (int step = s.steps; step-- > 0;) {
      RIDGELINE_RETURN_IF_FAILED(launch_backward<T>(args, step, stream));
      if (step > 0 || dh0 != nullptr) RIDGELINE_RETURN_IF_FAILED(run_all(products, 0, stream));
    }
    RIDGELINE_RETURN_IF_FAILED(launch_narrow_state<T>(args.dh, dh0, count, stream));
    return args.dc != nullptr ? launch_narrow_state<T>(args.dc, dc0, count, stream) : cudaSuccess;
  }
};

Cover covers_backward(const RemainingOps& rest, const LoopOptions& options) {
  const auto* op = rest.get<RnnGrad>(0);
  if (op == nullptr) return no_such_op(RnnGrad::kName);
  std::string reason = refuse_floats(floats_of(*op));
  if (reason.empty()) reason = refuse_shape(op->shape);
  if (reason.empty() && options.gate_products && gates(op->shape.cell) == 1) {
    reason = "the cell has one gate only";
  }
  const RowProduct product = back_product(*op, options, rest.program.precision);
  if (reason.empty())
    reason = refuse_product(cuda_runtime(rest.runtime), options.by, product, options.proposal);
  if (!reason.empty()) return Cover::no(std::move(reason));
  WorkspaceSlices slices;
  BackwardMemory(*op, options, product, slices);
  return cover_unless({}, 1, slices.total());
}

template <typename T>
BackwardLoop<T> backward_loop(const RnnGrad& op, int64_t d, const LoopOptions& options,
                              Precision precision, const Binding& binding) {
  const RnnShape& s = op.shape;
  RowProduct product = back_product(op, options, precision);
  WorkspaceSlices slices(binding.workspace());
  const BackwardMemory memory(op, options, product, slices);

  BackwardLoop<T> loop{};
  auto& args = loop.args;
  args.cell = cell_of(s.cell);
  args.sequence = sequence_of(s, d, binding.read(op.lengths));
  args.y = binding.read(op.y).as<T>();
  args.reserve = binding.read(op.reserve).as<T>();
  args.h0 = binding.read(op.h0).as<T>();
  args.c0 = binding.read(op.c0).as<T>();
  args.dy = binding.read(op.dy).as<T>();
  args.dh = static_cast<Accumulated<T>*>(memory.dh);
  args.dc = static_cast<Accumulated<T>*>(memory.dc);
  args.gate_gradients = binding.write(op.gate_gradients).as<T>();
  args.compact = static_cast<T*>(memory.compact);
  const auto state = states_of<T>(args.sequence);
  loop.dhT = state(binding.read(op.dhT).as<T>());
  loop.dcT = state(binding.read(op.dcT).as<T>());
  loop.dh0 = state(binding.write(op.dh0).as<T>());
  loop.dc0 = state(binding.write(op.dc0).as<T>());
  loop.w_hh = binding.read(op.weights[size_t(d)].w_hh).as<T>();
  loop.w_hh_t = static_cast<T*>(memory.w_hh_t);

  const int64_t count = options.gate_products ? gates(s.cell) : 1;
  for (int64_t gate = 0; gate < count; ++gate) {
    RowProduct p = product;
    const T* weights = options.transposed ? loop.w_hh_t : loop.w_hh;
    p.a.data = args.compact + gate * s.hidden;
    p.b.data = weights + gate * s.hidden * (options.transposed ? 1 : s.hidden);
    p.d = memory.dh;
    loop.products.push_back(prepare_product(cuda_runtime(binding.runtime()), options.by, p,
                                            memory.scratch, describe(Op(op)), options.proposal));
  }
  return loop;
}

std::unique_ptr<Step> prepare_backward(const Span& span, const Binding& binding,
                                       const LoopOptions& options) {
  const auto& op = span.get<RnnGrad>(0);
  return dispatch_device_float(op.dy.dtype, [&](auto type) {
    return directions_step(span, binding, op.shape, [&](int64_t d) {
      return backward_loop<decltype(type)>(op, d, options, span.program.precision, binding);
    });
  });
}

}  // namespace

Kernel recurrent::loop_backward_kernel(const char* how, const LoopOptions& options) {
  return cuda_kernel(fmt::format("cuda.rnn_grad.{}", how), covers_backward, prepare_backward,
                     options, product_traits(options.by, options.proposal));
}

}  // namespace ridgeline::cuda
