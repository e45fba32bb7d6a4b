#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/recurrent/kernels.h"

#ifdef RIDGELINE_HAVE_CUDNN

#include "ridgeline/cuda/recurrent/cudnn_rnn.h"
#include "ridgeline/cuda/recurrent/operands.h"

namespace ridgeline::cuda {
namespace {

// How a kernel calls cuDNN: which of its algorithms, and whether it takes half types.
struct CudnnVariant {
  const char* name;
  cudnnRNNAlgo_t algorithm;
  bool halves;
};
constexpr CudnnVariant kVariants[] = {
    {"cudnn.standard", CUDNN_RNN_ALGO_STANDARD, false},
    {"cudnn_half.standard", CUDNN_RNN_ALGO_STANDARD, true},
    {"cudnn_half.persistent", CUDNN_RNN_ALGO_PERSIST_STATIC, true},
    {"cudnn_half.persistent_dynamic", CUDNN_RNN_ALGO_PERSIST_DYNAMIC, true}};

std::string refuse(const RemainingOps& rest, const Rnn& op, const CudnnVariant& variant,
                   const Values& values) {
  const Cudnn& library = cuda_runtime(rest.runtime).cudnn();
  if (!library.refusal().empty()) return library.refusal();
  if (op.lengths) return "cuDNN wants lengths in the host's memory";
  if (op.shape.direction == Direction::reverse) return "cuDNN does not go backwards alone";
  std::string reason = refuse_floats(values);
  if (reason.empty() && (size_of(op.x.dtype) == 2) != variant.halves) {
    reason = variant.halves ? "is for halves" : "rounds partial sums to half: see cudnn_half";
  }
  if (reason.empty()) reason = recurrent::refuse_shape(op.shape);
  if (reason.empty() && variant.algorithm != CUDNN_RNN_ALGO_STANDARD &&
      (op.x.dtype != DType::fp16 || op.shape.hidden % 32 != 0)) {
    reason = "cuDNN's persistent kernels are for fp16 and multiples of 32 units";
  }
  return reason;
}

// The workspace of a kernel, beside the program's values.
struct Memory {
  void *weights, *gradients = nullptr, *scratch, *reserve = nullptr;
  void* dx = nullptr;  // cuDNN always computes it
  Memory(const CudnnRnn& layer, const Rnn& op, bool training, WorkspaceSlices& slices) {
    weights = slices.take(layer.weight_bytes());
    scratch = slices.take(layer.scratch_bytes());
    if (!training) return;
    gradients = slices.take(layer.weight_bytes());
    reserve = slices.take(layer.reserve_bytes());
    dx = slices.take(op.shape.x().numel(), op.x.dtype);
  }
};

Cover cover(const RemainingOps& rest, const Rnn& op, const CudnnVariant& variant, bool training,
            size_t ops) {
  const CudnnRnn layer(cuda_runtime(rest.runtime).cudnn(), op, rest.program.precision,
                       variant.algorithm, training);
  if (!layer.refusal().empty()) return Cover::no(layer.refusal());
  WorkspaceSlices slices;
  Memory(layer, op, training, slices);
  return cover_unless({}, ops, slices.total());
}

Cover covers_forward(const RemainingOps& rest, const CudnnVariant& variant) {
  const auto* op = rest.get<Rnn>(0);
  if (op == nullptr) return no_such_op(Rnn::kName);
  if (op->reserve) return Cover::no("keeps no reserve for our backward ops");
  std::string reason = refuse(
      rest, *op, variant, values_of(op->weights, {op->x, op->y, op->h0, op->c0, op->hT, op->cT}));
  if (!reason.empty()) return Cover::no(std::move(reason));
  return cover(rest, *op, variant, false, 1);
}

// A layer's forward and backward ops that are adjacent: a program has no value for what cuDNN keeps
// between them.
struct Training {
  const Rnn* rnn;
  const RnnGrad* grad;
  const RnnGradX* grad_x;  // may be null
  const RnnGradW* grad_w;
  size_t ops;

  template <typename Get>
  explicit Training(const Get& get) {
    rnn = get.template operator()<Rnn>(0);
    grad = get.template operator()<RnnGrad>(1);
    grad_x = get.template operator()<RnnGradX>(2);
    ops = grad_x != nullptr ? 4 : 3;
    grad_w = get.template operator()<RnnGradW>(ops - 1);
  }
  static Training at(const RemainingOps& rest) {
    return Training([&]<typename T>(size_t i) { return rest.get<T>(i); });
  }
  static Training at(const Span& span) {
    return Training([&]<typename T>(size_t i) -> const T* {
      return i < span.size() ? std::get_if<T>(&span.op(i)) : nullptr;
    });
  }

  // Whether they belong to one layer.
  bool belong() const {
    if (rnn == nullptr || grad == nullptr || grad_w == nullptr) return false;
    return grad->y.id == rnn->y.id && grad->reserve.id == rnn->reserve.id &&
           grad_w->x.id == rnn->x.id && grad_w->gate_gradients.id == grad->gate_gradients.id &&
           (grad_x == nullptr || grad_x->gate_gradients.id == grad->gate_gradients.id);
  }
  Values floats() const {
    Values all = values_of(rnn->weights, {rnn->x, rnn->y, rnn->h0, rnn->c0, rnn->hT, rnn->cT,
                                          grad->dy, grad->dhT, grad->dcT, grad->dh0, grad->dc0});
    if (grad_x != nullptr) all.push_back(grad_x->dx);
    return values_of(grad_w->grads, std::move(all));
  }
};

Cover covers_training(const RemainingOps& rest, const CudnnVariant& variant) {
  const Training t = Training::at(rest);
  if (!t.belong()) return Cover::no("no layer's forward and backward ops in a row");
  std::string reason = refuse(rest, *t.rnn, variant, t.floats());
  Values inside{t.grad->gate_gradients};
  if (t.rnn->reserve) inside.push_back(t.rnn->reserve);
  for (const Value& value : inside) {
    if (reason.empty() && !rest.dead_after(value, t.ops)) {
      reason = "its gate gradients or reserve are wanted outside";
    }
  }
  if (!reason.empty()) return Cover::no(std::move(reason));
  Cover found = cover(rest, *t.rnn, variant, true, t.ops);
  for (const Value& value : inside) found.skips.push_back(value.id);
  return found;
}

// A matrix or bias, and its place in cuDNN's weights.
struct Part {
  void *ours, *theirs;
  size_t bytes;
};

// The parts of a layer's weights, or of their gradients; `bound` returns a value's memory.
template <typename Bound>
std::vector<Part> parts_of(const CudnnRnn& layer, const RnnShape& s, const RnnDirections& weights,
                           void* theirs, const Bound& bound) {
  std::vector<Part> parts;
  for (int d = 0; d < int(s.directions()); ++d) {
    const RnnWeights& w = weights[size_t(d)];
    for (int64_t product = 0; product < 2 * gates(s.cell); ++product) {
      const bool of_x = product < gates(s.cell);
      const auto place = layer.place(d, int(product), theirs);
      const auto add = [&](const Value& value, void* to, int64_t row) {
        if (!value || to == nullptr) return;
        const size_t bytes = size_t(s.hidden * row) * size_of(value.dtype);
        auto* from = static_cast<std::byte*>(bound(value));
        parts.push_back({from + size_t(product % gates(s.cell)) * bytes, to, bytes});
      };
      add(of_x ? w.w_ih : w.w_hh, place.matrix, of_x ? s.in : s.hidden);
      add(of_x ? w.b_ih : w.b_hh, place.bias, 1);
    }
  }
  return parts;
}

cudaError_t copy_parts(const std::vector<Part>& parts, bool to_library, cudaStream_t stream) {
  for (const Part& part : parts) {
    const cudaError_t error =
        cudaMemcpyAsync(to_library ? part.theirs : part.ours, to_library ? part.ours : part.theirs,
                        part.bytes, cudaMemcpyDeviceToDevice, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

// Both kinds of kernels prepare this.
struct Prepared {
  std::shared_ptr<CudnnRnn> layer;
  Memory memory;
  CudnnRnn::Operands operands;
  std::vector<Part> weights;

  Prepared(const Rnn& op, const CudnnVariant& variant, bool training, Precision precision,
           const Binding& binding, WorkspaceSlices slices)
      : layer(std::make_shared<CudnnRnn>(cuda_runtime(binding.runtime()).cudnn(), op, precision,
                                         variant.algorithm, training)),
        memory(*layer, op, training, slices) {
    const auto read = [&](const Value& v) { return binding.read(v).data; };
    const auto write = [&](const Value& v) { return binding.write(v).data; };
    operands = {read(op.x),   read(op.h0),    read(op.c0),    write(op.y),   write(op.hT),
                write(op.cT), memory.weights, memory.scratch, memory.reserve};
    weights = parts_of(*layer, op.shape, op.weights, memory.weights, read);
  }
};

std::unique_ptr<Step> prepare_forward(const Span& span, const Binding& binding,
                                      const CudnnVariant& variant) {
  const auto& op = span.get<Rnn>(0);
  const Prepared p(op, variant, false, span.program.precision, binding,
                   WorkspaceSlices(binding.workspace()));
  const std::string what = describe(span.op(0));
  return launch_step(binding, what, [=](cudaStream_t stream) {
    const cudaError_t error = copy_parts(p.weights, true, stream);
    if (error == cudaSuccess) p.layer->forward(p.operands, stream, what);
    return error;
  });
}

std::unique_ptr<Step> prepare_training(const Span& span, const Binding& binding,
                                       const CudnnVariant& variant) {
  const Training t = Training::at(span);
  const Prepared p(*t.rnn, variant, true, span.program.precision, binding,
                   WorkspaceSlices(binding.workspace()));
  const auto read = [&](const Value& v) { return binding.read(v).data; };
  const auto write = [&](const Value& v) { return binding.write(v).data; };
  const CudnnRnn::Gradients gradients{
      read(t.grad->dy),   read(t.grad->dhT),
      read(t.grad->dcT),  t.grad_x != nullptr ? write(t.grad_x->dx) : p.memory.dx,
      write(t.grad->dh0), write(t.grad->dc0),
      p.memory.gradients};
  const auto ours = parts_of(*p.layer, t.rnn->shape, t.grad_w->grads, p.memory.gradients, write);
  const std::string what = describe(span.op(0));
  return launch_step(binding, what, [=](cudaStream_t stream) {
    const cudaError_t error = copy_parts(p.weights, true, stream);
    if (error != cudaSuccess) return error;
    p.layer->forward(p.operands, stream, what);
    p.layer->backward(p.operands, gradients, stream, what);
    return copy_parts(ours, false, stream);
  });
}

}  // namespace

KernelTable cudnn_rnn_kernels(bool halves) {
  KernelTable table;
  for (const CudnnVariant& variant : kVariants) {
    if (variant.halves != halves) continue;
    table.push_back(cuda_kernel(fmt::format("cuda.rnn.{}", variant.name), covers_forward,
                                prepare_forward, variant));
    table.push_back(cuda_kernel(fmt::format("cuda.rnn_training.{}", variant.name), covers_training,
                                prepare_training, variant));
  }
  return with_traits({.precisions = halves ? kHalves : kFp64AndFp32,
                      .library = Library::cudnn,
                      .vendor = true,
                      .slow_to_query = true},  // cuDNN builds its plans when it is queried
                     std::move(table));
}

}  // namespace ridgeline::cuda

#else

namespace ridgeline::cuda {
KernelTable cudnn_rnn_kernels(bool) { return {}; }
}  // namespace ridgeline::cuda

#endif
