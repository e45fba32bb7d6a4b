#include "ridgeline/cuda/recurrent/kernels.h"
#include "ridgeline/cuda/recurrent/loop_kernels.h"
#include "ridgeline/cuda/recurrent/side_stream.h"

namespace ridgeline::cuda {
namespace {

using namespace recurrent;

struct ForwardMemory {
  void *from_x, *from_h, *h, *c, *w_hh_t, *scratch, *x_scratch;

  ForwardMemory(const Rnn& op, const LoopOptions& options, const RowProduct& x,
                const RowProduct& h_product, WorkspaceSlices& slices) {
    const RnnShape& s = op.shape;
    const DType dtype = op.y.dtype, accumulator = accumulated(dtype);
    from_x = slices.take(s.rows() * s.gate_rows(), accumulator);
    from_h = nullptr;
    if (!options.added)
      from_h = slices.take(s.batch * gradient_vectors(s.cell) * s.hidden, accumulator);
    h = slices.take(s.batch * s.hidden, dtype);
    c = s.cell == CellKind::lstm ? slices.take(s.batch * s.hidden, accumulator) : nullptr;
    w_hh_t = options.transposed ? slices.take(s.gate_rows() * s.hidden, dtype) : nullptr;
    scratch = slices.take(product_scratch(options.by, h_product));
    x_scratch = slices.take(product_scratch(options.by, x));
  }
};

// from_x[rows, gates * H] = x . w_ih^T for all timesteps, or for one timestep with a stride to the
// next
RowProduct input_product(const Rnn& op, const LoopOptions& options, Precision precision) {
  const RnnShape& s = op.shape;
  RowProduct p;
  p.dtype = op.x.dtype;
  p.result = accumulated(op.x.dtype);
  p.precision = precision;
  p.m = options.each_input ? s.batch : s.rows();
  p.n = options.gate_products ? s.hidden : s.gate_rows();
  p.k = s.in;
  p.a = {nullptr, options.each_input ? s.steps * s.in : s.in, false, options.each_input ? s.in : 0};
  p.b = {nullptr, s.in, true, 0};
  p.d_pitch = options.each_input ? s.steps * s.gate_rows() : s.gate_rows();
  p.d_stride = options.each_input ? s.gate_rows() : 0;
  return p;
}

// from_h[B, vectors * H] = h . w_hh^T, or from_x += that
RowProduct state_product(const Rnn& op, const LoopOptions& options, Precision precision) {
  const RnnShape& s = op.shape;
  RowProduct p;
  p.dtype = op.x.dtype;
  p.result = accumulated(op.x.dtype);
  p.precision = precision;
  p.m = s.batch;
  p.n = options.gate_products ? s.hidden : s.gate_rows();
  p.k = s.hidden;
  p.a = {nullptr, s.hidden, false, 0};
  p.b = options.transposed ? Factor{nullptr, s.gate_rows(), false, 0}
                           : Factor{nullptr, s.hidden, true, 0};
  p.d_pitch = options.added ? s.steps * s.gate_rows() : gradient_vectors(s.cell) * s.hidden;
  p.d_stride = options.added ? s.gate_rows() : 0;
  p.adds = options.added;
  return p;
}

// One product per gate, or a single one.
std::vector<Multiply> per_gate(const CudaRuntime& runtime, const LoopOptions& options,
                               const RnnShape& s, const RowProduct& product, void* scratch,
                               const std::string& what, int proposal = 0) {
  std::vector<Multiply> all;
  const int64_t count = options.gate_products ? gates(s.cell) : 1;
  for (int64_t gate = 0; gate < count; ++gate) {
    RowProduct p = product;
    const auto move = [](const void* data, int64_t elements, DType dtype) {
      return static_cast<const std::byte*>(data) + elements * int64_t(size_of(dtype));
    };
    p.b.data = move(p.b.data, gate * s.hidden * p.b.pitch, p.dtype);
    p.d = const_cast<std::byte*>(move(p.d, gate * s.hidden, p.result));
    all.push_back(prepare_product(runtime, options.by, p, scratch, what, proposal));
  }
  return all;
}

// The forward pass of one direction.
template <typename T>
struct ForwardLoop {
  LoopOptions options;
  ForwardArgs<T> args;
  const T *h0, *c0, *w_hh;
  T *w_hh_t, *hT, *cT;
  std::vector<Multiply> of_x, of_h;
  std::shared_ptr<SideStream> side;

  cudaError_t run(cudaStream_t stream) const {
    const Sequence& s = args.sequence;
    const int64_t count = int64_t(s.batch) * s.hidden;
    RIDGELINE_RETURN_IF_FAILED(launch_begin<T>(h0, c0, args.h, args.c, count, stream));
    if (w_hh_t != nullptr) {
      RIDGELINE_RETURN_IF_FAILED(
          launch_transpose<T>(w_hh, w_hh_t, cell_gates(args.cell) * s.hidden, s.hidden, 1, stream));
    }
    if (!options.each_input) RIDGELINE_RETURN_IF_FAILED(run_all(of_x, 0, stream));
    if (side) RIDGELINE_RETURN_IF_FAILED(start_inputs(stream));
    for (int step = 0; step < s.steps; ++step) {
      if (side) {
        RIDGELINE_RETURN_IF_FAILED(side->wait(step, stream));
      } else if (options.each_input) {
        RIDGELINE_RETURN_IF_FAILED(run_all(of_x, time(step), stream));
      }
      RIDGELINE_RETURN_IF_FAILED(run_all(of_h, options.added ? time(step) : 0, stream));
      for (int gate = 0; options.apart && gate < cell_gates(args.cell); ++gate) {
        RIDGELINE_RETURN_IF_FAILED(launch_gate<T>(args, step, gate, stream));
      }
      RIDGELINE_RETURN_IF_FAILED(launch_forward<T>(args, step, !options.apart, stream));
    }
    if (hT != nullptr) {
      RIDGELINE_RETURN_IF_FAILED(
          cudaMemcpyAsync(hT, args.h, size_t(count) * sizeof(T), cudaMemcpyDefault, stream));
    }
    return args.c != nullptr ? launch_narrow_state<T>(args.c, cT, count, stream) : cudaSuccess;
  }

 private:
  // One timestep at a time, all samples are at the same time index, because reverse passes with
  // lengths are refused.
  int time(int step) const { return args.sequence.reverse ? args.sequence.steps - 1 - step : step; }
  cudaError_t start_inputs(cudaStream_t stream) const {
    RIDGELINE_RETURN_IF_FAILED(side->fork(stream));
    for (int step = 0; step < args.sequence.steps; ++step) {
      RIDGELINE_RETURN_IF_FAILED(run_all(of_x, time(step), side->stream()));
      RIDGELINE_RETURN_IF_FAILED(side->mark(step));
    }
    return cudaSuccess;
  }
};

std::string refuse_forward(const RemainingOps& rest, const Rnn& op, const LoopOptions& options) {
  std::string reason = refuse_floats(floats_of(op));
  if (reason.empty()) reason = refuse_shape(op.shape);
  if (!reason.empty()) return reason;
  if ((options.each_input || options.added) && op.lengths &&
      op.shape.direction != Direction::forward) {
    return "in reverse samples of different lengths are not at the same step";
  }
  if (options.added && op.shape.cell == CellKind::gru) {
    return "a gru's last gate takes the sums with x and with h apart";
  }
  if (options.gate_products && gates(op.shape.cell) == 1) return "the cell has one gate only";
  const CudaRuntime& runtime = cuda_runtime(rest.runtime);
  const Precision precision = rest.program.precision;
  reason = refuse_product(runtime, options.by, input_product(op, options, precision));
  if (!reason.empty()) return reason;
  return refuse_product(runtime, options.by, state_product(op, options, precision),
                        options.proposal);
}

Cover covers_forward(const RemainingOps& rest, const LoopOptions& options) {
  const auto* op = rest.get<Rnn>(0);
  if (op == nullptr) return no_such_op(Rnn::kName);
  std::string reason = refuse_forward(rest, *op, options);
  if (!reason.empty()) return Cover::no(std::move(reason));
  WorkspaceSlices slices;  // for one direction: the other runs afterwards
  ForwardMemory(*op, options, input_product(*op, options, rest.program.precision),
                state_product(*op, options, rest.program.precision), slices);
  return cover_unless({}, 1, slices.total());
}

template <typename T>
ForwardLoop<T> forward_loop(const Rnn& op, int64_t d, const LoopOptions& options,
                            Precision precision, const Binding& binding) {
  const RnnShape& s = op.shape;
  const CudaRuntime& runtime = cuda_runtime(binding.runtime());
  const RnnWeights& w = op.weights[size_t(d)];
  const DType dtype = op.x.dtype;
  RowProduct of_x = input_product(op, options, precision);
  RowProduct of_h = state_product(op, options, precision);
  WorkspaceSlices slices(binding.workspace());
  const ForwardMemory memory(op, options, of_x, of_h, slices);

  ForwardLoop<T> loop{};
  loop.options = options;
  auto& args = loop.args;
  args.cell = cell_of(s.cell);
  args.sequence = sequence_of(s, d, binding.read(op.lengths));
  args.from_x = static_cast<Accumulated<T>*>(memory.from_x);
  args.from_h = static_cast<Accumulated<T>*>(memory.from_h);
  args.b_ih = read_mixed<T>(binding, w.b_ih, dtype);
  args.b_hh = read_mixed<T>(binding, w.b_hh, dtype);
  args.h = static_cast<T*>(memory.h);
  args.c = static_cast<Accumulated<T>*>(memory.c);
  args.y = binding.write(op.y).as<T>();
  args.reserve = binding.write(op.reserve).as<T>();
  const auto state = states_of<T>(args.sequence);
  loop.h0 = state(binding.read(op.h0).as<T>());
  loop.c0 = state(binding.read(op.c0).as<T>());
  loop.hT = state(binding.write(op.hT).as<T>());
  loop.cT = state(binding.write(op.cT).as<T>());
  loop.w_hh = binding.read(w.w_hh).as<T>();
  loop.w_hh_t = static_cast<T*>(memory.w_hh_t);

  const std::string what = describe(Op(op));
  of_x.a.data = binding.read(op.x).data;
  of_x.b.data = binding.read(w.w_ih).data;
  of_x.d = memory.from_x;
  loop.of_x = per_gate(runtime, options, s, of_x, memory.x_scratch, what);
  of_h.a.data = memory.h;
  of_h.b.data = options.transposed ? memory.w_hh_t : loop.w_hh;
  of_h.d = options.added ? memory.from_x : memory.from_h;
  loop.of_h = per_gate(runtime, options, s, of_h, memory.scratch, what, options.proposal);
  if (options.streams) loop.side = std::make_shared<SideStream>(s.steps);
  return loop;
}

std::unique_ptr<Step> prepare_forward(const Span& span, const Binding& binding,
                                      const LoopOptions& options) {
  const auto& op = span.get<Rnn>(0);
  return dispatch_device_float(op.x.dtype, [&](auto type) {
    return directions_step(span, binding, op.shape, [&](int64_t d) {
      return forward_loop<decltype(type)>(op, d, options, span.program.precision, binding);
    });
  });
}

}  // namespace

Kernel recurrent::loop_forward_kernel(const char* how, const LoopOptions& options) {
  return cuda_kernel(fmt::format("cuda.rnn.{}", how), covers_forward, prepare_forward, options,
                     product_traits(options.by, options.proposal));
}

KernelTable rnn_loop_kernels() {
  return {loop_forward_kernel("combined_added", {.added = true}),
          loop_forward_kernel("combined_added.1", {.added = true, .proposal = 1}),
          loop_forward_kernel("combined_added.2", {.added = true, .proposal = 2}),
          loop_forward_kernel("combined_transposed", {.transposed = true}),
          loop_forward_kernel("combined", {}),
          loop_forward_kernel("combined.1", {.proposal = 1}),
          loop_forward_kernel("combined.2", {.proposal = 2}),
          loop_forward_kernel("plain", {.by = Multiplier::plain}),
          loop_backward_kernel("transposed", {.transposed = true}),
          loop_backward_kernel("transposed.1", {.transposed = true, .proposal = 1}),
          loop_backward_kernel("transposed.2", {.transposed = true, .proposal = 2}),
          loop_backward_kernel("one_product", {}),
          loop_backward_kernel("one_product.1", {.proposal = 1}),
          loop_backward_kernel("one_product.2", {.proposal = 2}),
          loop_backward_kernel("plain", {.by = Multiplier::plain})};
}

}  // namespace ridgeline::cuda
