#include "ridgeline/cuda/recurrent/kernels.h"
#include "ridgeline/cuda/recurrent/operands.h"
#include "ridgeline/cuda/recurrent/product.h"
#include "ridgeline/cuda/recurrent/weight_sums.h"

namespace ridgeline::cuda {
namespace {

using namespace recurrent;

// The library that computes the products, and which of cuBLASLt's proposals it takes.
struct Choice {
  Multiplier by;
  int proposal;
};

int64_t gradients_pitch(const RnnShape& s) {
  return s.directions() * gradient_vectors(s.cell) * s.hidden;
}

// dx[rows, in] = gate gradients . w_ih. With both directions the weights are stacked vertically,
// with zeros for gru's fourth vector, so that dx is one sum, rounded once.
RowProduct grad_x_product(const RnnGradX& op, Precision precision) {
  const RnnShape& s = op.shape;
  RowProduct p;
  p.dtype = p.result = op.dx.dtype;
  p.precision = precision;
  p.m = s.rows();
  p.n = s.in;
  p.k = s.directions() == 1 ? s.gate_rows() : gradients_pitch(s);
  p.a = {nullptr, gradients_pitch(s), false, 0};
  p.b = {nullptr, s.in, false, 0};
  p.d_pitch = s.in;
  return p;
}

struct GradXMemory {
  void *stacked, *scratch;
  GradXMemory(const RnnGradX& op, const Choice& choice, const RowProduct& product,
              WorkspaceSlices& slices) {
    const RnnShape& s = op.shape;
    stacked = s.directions() == 2 ? slices.take(gradients_pitch(s) * s.in, op.dx.dtype) : nullptr;
    scratch = slices.take(product_scratch(choice.by, product));
  }
};

Cover covers_grad_x(const RemainingOps& rest, const Choice& choice) {
  const auto* op = rest.get<RnnGradX>(0);
  if (op == nullptr) return no_such_op(RnnGradX::kName);
  std::string reason =
      refuse_floats({op->gate_gradients, op->weights[0].w_ih, op->weights[1].w_ih, op->dx});
  if (reason.empty()) reason = refuse_shape(op->shape);
  const RowProduct product = grad_x_product(*op, rest.program.precision);
  if (reason.empty()) reason = refuse_product(cuda_runtime(rest.runtime), choice.by, product);
  if (!reason.empty()) return Cover::no(std::move(reason));
  WorkspaceSlices slices;
  GradXMemory(*op, choice, product, slices);
  return cover_unless({}, 1, slices.total());
}

std::unique_ptr<Step> prepare_grad_x(const Span& span, const Binding& binding,
                                     const Choice& choice) {
  const auto& op = span.get<RnnGradX>(0);
  const RnnShape s = op.shape;
  RowProduct product = grad_x_product(op, span.program.precision);
  WorkspaceSlices slices(binding.workspace());
  const GradXMemory memory(op, choice, product, slices);
  const Tensor first = binding.read(op.weights[0].w_ih), second = binding.read(op.weights[1].w_ih);
  product.a.data = binding.read(op.gate_gradients).data;
  product.b.data = memory.stacked != nullptr ? memory.stacked : first.data;
  product.d = binding.write(op.dx).data;
  const std::string what = describe(span.op(0));
  const Multiply multiply = prepare_product(cuda_runtime(binding.runtime()), choice.by, product,
                                            memory.scratch, what, choice.proposal);
  return launch_step(binding, what, [=](cudaStream_t stream) {
    if (memory.stacked != nullptr) {
      auto* to = static_cast<std::byte*>(memory.stacked);
      const size_t each = size_t(gradients_pitch(s) / 2 * s.in) * size_of(first.dtype);
      for (const Tensor& w : {first, second}) {
        cudaError_t error = cudaMemcpyAsync(to, w.data, w.bytes(), cudaMemcpyDefault, stream);
        if (error == cudaSuccess && w.bytes() < each) {
          error = cudaMemsetAsync(to + w.bytes(), 0, each - w.bytes(), stream);
        }
        if (error != cudaSuccess) return error;
        to += each;
      }
    }
    return multiply(0, stream);
  });
}

// dw[rows of some gates, width] = gate gradients^T . inputs
RowProduct grad_w_product(const RnnGradW& op, int64_t gate_count, int64_t width, DType result,
                          Precision precision) {
  const RnnShape& s = op.shape;
  RowProduct p;
  p.dtype = op.x.dtype;
  p.result = result;
  p.precision = precision;
  p.m = gate_count * s.hidden;
  p.n = width;
  p.k = s.rows();
  p.a = {nullptr, gradients_pitch(s), true, 0};
  p.b = {nullptr, width, false, 0};
  p.d_pitch = width;
  return p;
}

// gru's last gate is multiplied with h by a vector of its own, so w_hh needs two products.
int64_t joined_gates(const RnnShape& s) { return s.cell == CellKind::gru ? 2 : gates(s.cell); }

struct GradWMemory {
  void *cleared, *before, *parts, *scratch;
  GradWMemory(const RnnGradW& op, const Choice& choice, const RowProduct& of_x,
              const RowProduct& of_h, WorkspaceSlices& slices) {
    const RnnShape& s = op.shape;
    cleared = op.lengths ? slices.take(s.rows() * s.in, op.x.dtype) : nullptr;
    before = slices.take(s.rows() * s.hidden, op.y.dtype);
    parts = slices.take(kBiasParts * gradient_vectors(s.cell) * s.hidden, accumulated(op.y.dtype));
    scratch =
        slices.take(std::max(product_scratch(choice.by, of_x), product_scratch(choice.by, of_h)));
  }
};

struct GradWProducts {
  RowProduct of_x, of_h;
  GradWProducts(const RnnGradW& op, Precision precision)
      : of_x(grad_w_product(op, gates(op.shape.cell), op.shape.in, op.grads[0].w_ih.dtype,
                            precision)),
        of_h(grad_w_product(op, joined_gates(op.shape), op.shape.hidden, op.grads[0].w_hh.dtype,
                            precision)) {}
};

Cover covers_grad_w(const RemainingOps& rest, const Choice& choice) {
  const auto* op = rest.get<RnnGradW>(0);
  if (op == nullptr) return no_such_op(RnnGradW::kName);
  const DType dtype = op->x.dtype;
  Values floats{op->x, op->y, op->h0, op->gate_gradients};
  for (const RnnWeights& grads : op->grads) {
    for (const Value& v : grads.values()) floats.push_back(unless_mixed(v, dtype));
  }
  std::string reason = refuse_floats(floats);
  if (reason.empty()) reason = refuse_shape(op->shape);
  if (!reason.empty()) return Cover::no(std::move(reason));
  const GradWProducts products(*op, rest.program.precision);
  for (const RowProduct& product : {products.of_x, products.of_h}) {
    reason = refuse_product(cuda_runtime(rest.runtime), choice.by, product);
    if (!reason.empty()) return Cover::no(std::move(reason));
  }
  WorkspaceSlices slices;
  GradWMemory(*op, choice, products.of_x, products.of_h, slices);
  return cover_unless({}, 1, slices.total());
}

// One direction.
template <typename T>
struct WeightGradients {
  Sequence sequence;
  Cell cell;
  const T *x, *y, *h0, *gradients;
  T *cleared, *before;  // cleared: null without lengths
  Accumulated<T>* parts;
  int64_t in, rows, pitch;
  std::vector<Multiply> products;
  MixedOut<T> db_ih, db_hh;

  cudaError_t run(cudaStream_t stream) const {
    cudaError_t error = launch_states_before<T>(sequence, y, h0, before, stream);
    // The second direction reuses what the first one left.
    if (error == cudaSuccess && cleared != nullptr && sequence.direction == 0) {
      error = launch_clear_padding<T>(sequence, x, int(in), cleared, stream);
    }
    for (const Multiply& product : products) {
      if (error == cudaSuccess) error = product(0, stream);
    }
    if (error != cudaSuccess) return error;
    return launch_bias_gradients<T>(gradients, rows, pitch, cell, sequence.hidden, parts, db_ih,
                                    db_hh, stream);
  }
};

template <typename T>
WeightGradients<T> weight_gradients(const RnnGradW& op, int64_t d, const Choice& choice,
                                    Precision precision, const Binding& binding) {
  const RnnShape& s = op.shape;
  const RnnWeights& grads = op.grads[size_t(d)];
  const GradWProducts shapes(op, precision);
  WorkspaceSlices slices(binding.workspace());
  const GradWMemory memory(op, choice, shapes.of_x, shapes.of_h, slices);
  WeightGradients<T> all{};
  all.sequence = sequence_of(s, d, binding.read(op.lengths));
  all.cell = cell_of(s.cell);
  all.x = binding.read(op.x).as<T>();
  all.y = binding.read(op.y).as<T>();
  all.h0 = binding.read(op.h0).as<T>();
  all.gradients = binding.read(op.gate_gradients).as<T>() + d * gradient_vectors(s.cell) * s.hidden;
  all.cleared = static_cast<T*>(memory.cleared);
  all.before = static_cast<T*>(memory.before);
  all.parts = static_cast<Accumulated<T>*>(memory.parts);
  all.in = s.in;
  all.rows = s.rows();
  all.pitch = gradients_pitch(s);
  all.db_ih = write_mixed<T>(binding, grads.b_ih, op.x.dtype);
  all.db_hh = write_mixed<T>(binding, grads.b_hh, op.x.dtype);

  const auto add = [&](RowProduct p, const T* gradients, const void* inputs, std::byte* to) {
    p.a.data = gradients;
    p.b.data = inputs;
    p.d = to;
    all.products.push_back(prepare_product(cuda_runtime(binding.runtime()), choice.by, p,
                                           memory.scratch, describe(Op(op)), choice.proposal));
  };
  const auto bytes_of = [&](const Value& v) {
    return static_cast<std::byte*>(binding.write(v).data);
  };
  add(shapes.of_x, all.gradients, all.cleared != nullptr ? all.cleared : all.x,
      bytes_of(grads.w_ih));
  add(shapes.of_h, all.gradients, memory.before, bytes_of(grads.w_hh));
  if (s.cell == CellKind::gru) {
    const size_t rows_before = size_t(2 * s.hidden * s.hidden) * size_of(grads.w_hh.dtype);
    add(grad_w_product(op, 1, s.hidden, grads.w_hh.dtype, precision), all.gradients + 3 * s.hidden,
        memory.before, bytes_of(grads.w_hh) + rows_before);
  }
  return all;
}

std::unique_ptr<Step> prepare_grad_w(const Span& span, const Binding& binding,
                                     const Choice& choice) {
  const auto& op = span.get<RnnGradW>(0);
  return dispatch_device_float(op.x.dtype, [&](auto type) {
    return directions_step(span, binding, op.shape, [&](int64_t d) {
      return weight_gradients<decltype(type)>(op, d, choice, span.program.precision, binding);
    });
  });
}

}  // namespace

KernelTable rnn_product_kernels() {
  KernelTable table;
  const std::pair<const char*, Choice> ways[] = {{"cublaslt.0", {Multiplier::cublaslt, 0}},
                                                 {"cublaslt.1", {Multiplier::cublaslt, 1}},
                                                 {"plain", {Multiplier::plain, 0}}};
  for (const auto& [how, choice] : ways) {
    const Traits traits = product_traits(choice.by, choice.proposal);
    table.push_back(cuda_kernel(fmt::format("cuda.rnn_grad_x.{}", how), covers_grad_x,
                                prepare_grad_x, choice, traits));
    table.push_back(cuda_kernel(fmt::format("cuda.rnn_grad_w.{}", how), covers_grad_w,
                                prepare_grad_w, choice, traits));
  }
  return table;
}

}  // namespace ridgeline::cuda
