#include "ridgeline/cuda/channels_last/kernels.h"

#ifdef RIDGELINE_HAVE_CUDNN

#include <optional>

#include "ridgeline/cuda/channels_last/batch_norm.h"
#include "ridgeline/cuda/channels_last/format.h"
#include "ridgeline/cuda/channels_last/image_ops.h"
#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/libraries/conv_plans.h"
#include "ridgeline/cuda/plain/bind_mixed_operand.h"

namespace ridgeline::cuda {
namespace {

constexpr int kProposals = 4;
constexpr int64_t kRun = 8;  // halves in 16 bytes, the unit that cuDNN's kernels load
// The limit per filter: image_ops.cu keeps part of a filter in shared memory.
constexpr int64_t kMostTaps = 1024;

size_t aligned(size_t bytes) {
  return (bytes + ConvPlans::kAlignment - 1) / ConvPlans::kAlignment * ConvPlans::kAlignment;
}

PixelRows rows_of(const Image& image) { return {image.c, image.pixels()}; }

// The ops that a kernel fuses into the convolution's epilogue.
enum class Epilogue { none, relu, add_relu, relu_add, add };

// A convolution or one of its gradients, described by its operands.
struct Pass {
  Value x, w, y, b;  // b: the bias or its gradient; optional
  Conv2dShape shape;
  ConvPass pass;
  // With an epilogue: the value it adds, the value it writes instead of y (or dx), and the values
  // before that.
  Epilogue epilogue = Epilogue::none;
  bool repeats = true;
  Value addend = {}, result = {};
  Values inner = {};

  explicit Pass(const Conv2d& op)
      : x(op.x), w(op.w), y(op.y), b(op.b), shape(op.shape), pass(ConvPass::forward) {}
  explicit Pass(const Conv2dGradX& op)
      : x(op.dx), w(op.w), y(op.dy), shape(op.shape), pass(ConvPass::grad_x) {}
  explicit Pass(const Conv2dGradW& op)
      : x(op.x), w(op.dw), y(op.dy), b(op.db), shape(op.shape), pass(ConvPass::grad_w) {}

  int64_t n() const { return x.shape[0]; }
  int64_t taps() const { return shape.window.h.kernel * shape.window.w.kernel; }
  int64_t rows() const { return n() * shape.out().pixels(); }
  // Space for the transposed filters. A filter of one tap is the same in both layouts.
  size_t filter_bytes() const {
    return taps() == 1 ? 0 : aligned(size_t(w.shape.numel()) * size_of(w.dtype));
  }
  size_t sums_bytes(int sms) const {
    return pass == ConvPass::grad_w && b ? aligned(norm_workspace(rows(), int(shape.k), sms)) : 0;
  }

  ConvProblem problem() const {
    ConvProblem problem;
    problem.pass = pass;
    problem.shape = shape;
    problem.n = n();
    problem.dtype = y.dtype;
    problem.written = pass == ConvPass::grad_w ? w.dtype : y.dtype;
    if (pass == ConvPass::forward && b) problem.bias = b.dtype;
    problem.addend = bool(addend);
    problem.relu = epilogue == Epilogue::relu || epilogue == Epilogue::add_relu;
    problem.relu_first = epilogue == Epilogue::relu_add;
    problem.channels_last = true;
    problem.repeats = repeats;
    return problem;
  }

  std::string refuse() const {
    if (size_of(x.dtype) != 2) return "takes bf16 and fp16";
    if (taps() > kMostTaps) return "a filter of more taps than a block holds";
    if (shape.out().pixels() == 1 && shape.in.pixels() == 1) return "images of one pixel";
    if (shape.k % kRun != 0 || (pass == ConvPass::grad_x && shape.in.c % kRun != 0)) {
      return "takes channels by eights";
    }
    // With a bias and other channel counts, some of cuDNN's algorithms round the sums before they
    // add the bias.
    if (pass == ConvPass::forward && b && shape.in.c % kRun != 0) return "takes channels by eights";
    const DType dtype = x.dtype;
    std::string reason = refuse_floats(
        {x, y, pass == ConvPass::grad_w ? unless_mixed(w, dtype) : w, unless_mixed(b, dtype)});
    if (!reason.empty()) return reason;
    return refuse_large(
        {n(), shape.in.numel(), shape.out().numel(), shape.weight().numel(), rows()});
  }
};

int sms(const Runtime& runtime) { return cuda_runtime(runtime).sms(); }

// One kernel of the family: which epilogue, and which of cuDNN's proposals.
struct ConvVariant {
  Epilogue epilogue;
  int proposal;
  bool repeats = true;
};

// The other addend of a sum of two that includes `x`; absent if this is no such sum.
Value other_addend(const Add* add, const Value& x) {
  if (add == nullptr || add->xs.size() != 2 || add->scale != 1 || add->xs[0].id == add->xs[1].id) {
    return {};
  }
  return add->xs[0].id == x.id ? add->xs[1] : add->xs[1].id == x.id ? add->xs[0] : Value{};
}

// The pass at a position followed by the ops of its epilogue; nothing if other ops follow.
template <typename Op>
std::optional<Pass> find_pass(const RemainingOps& rest, const ConvVariant& variant) {
  const auto* op = rest.get<Op>(0);
  if (op == nullptr) return {};
  Pass pass(*op);
  const Epilogue epilogue = pass.epilogue = variant.epilogue;
  pass.repeats = variant.repeats;
  pass.result = pass.pass == ConvPass::grad_x ? pass.x : pass.y;
  const auto follow = [&](const Value& next) {
    pass.inner.push_back(pass.result);
    pass.result = next;
  };
  const auto take_add = [&](size_t at) {
    const auto* add = rest.get<Add>(at);
    pass.addend = other_addend(add, pass.result);
    if (!pass.addend) return false;
    follow(add->y);
    return true;
  };
  const auto take_relu = [&](size_t at) {
    const auto* relu = rest.get<Activation>(at);
    if (relu == nullptr || relu->kind != ActivationKind::relu || relu->x.id != pass.result.id) {
      return false;
    }
    follow(relu->y);
    return true;
  };
  const bool found = epilogue == Epilogue::none       ? true
                     : epilogue == Epilogue::add      ? take_add(1)
                     : epilogue == Epilogue::relu     ? take_relu(1)
                     : epilogue == Epilogue::add_relu ? take_add(1) && take_relu(2)
                                                      : take_relu(1) && take_add(2);
  return found ? std::optional(pass) : std::nullopt;
}

template <typename Op>
Cover covers(const RemainingOps& rest, const ConvVariant& variant) {
  if (rest.get<Op>(0) == nullptr) return no_such_op(Op::kName);
  const Cudnn& library = cuda_runtime(rest.runtime).cudnn();
  if (!library.refusal().empty()) return Cover::no(library.refusal());
  const auto found = find_pass<Op>(rest, variant);
  if (!found) return Cover::no("the next ops are not those of its epilogue");
  const Pass& pass = *found;
  const int proposal = variant.proposal;
  std::string reason = pass.refuse();
  for (const Value& value : pass.inner) {
    if (reason.empty() && !rest.dead_after(value, 1 + pass.inner.size())) {
      reason = "a value between the ops is needed later";
    }
  }
  if (!reason.empty()) return Cover::no(reason);
  const auto bytes = library.conv_plans(pass.problem()).workspace(proposal);
  if (!bytes) return Cover::no(fmt::format("cuDNN offers fewer than {} algorithms", proposal + 1));
  Cover cover = Cover::of(1 + pass.inner.size());
  for (const Value& value : pass.inner) cover.skips.push_back(value.id);
  cover.workspace =
      ConvPlans::kAlignment + pass.filter_bytes() + pass.sums_bytes(sms(rest.runtime)) + *bytes;
  const PixelRows in = rows_of(pass.shape.in), out = rows_of(pass.shape.out());
  const bool forward = pass.pass == ConvPass::forward, grad_x = pass.pass == ConvPass::grad_x;
  if (!grad_x) use_channels_last(cover.reads, pass.x, in);
  if (!forward) use_channels_last(cover.reads, pass.y, out);
  if (pass.addend) use_channels_last(cover.reads, pass.addend, grad_x ? in : out);
  if (forward || grad_x) use_channels_last(cover.writes, pass.result, grad_x ? in : out);
  return cover;
}

template <typename T>
using Filters = cudaError_t (*)(const T*, T*, int, int, int, cudaStream_t);

// Transposes the filters before a pass that reads them, or after the pass that writes them.
std::function<cudaError_t(cudaStream_t)> turn_filters(const Pass& pass, const void* from,
                                                      void* to) {
  const int k = int(pass.shape.k), c = int(pass.shape.group_in()), taps = int(pass.taps());
  if (taps == 1) return [](cudaStream_t) { return cudaSuccess; };
  const auto turn = [=, writes = pass.pass == ConvPass::grad_w](
                        auto type) -> std::function<cudaError_t(cudaStream_t)> {
    using T = decltype(type);
    const Filters<T> launch = writes ? launch_filters_first<T> : launch_filters_last<T>;
    return [=](cudaStream_t stream) {
      return launch(static_cast<const T*>(from), static_cast<T*>(to), k, c, taps, stream);
    };
  };
  if (pass.w.dtype == DType::fp32) return turn(float{});
  return dispatch_device_half(pass.w.dtype, turn);
}

template <typename Op>
std::unique_ptr<Step> prepare(const Span& span, const Binding& binding,
                              const ConvVariant& variant) {
  const Pass pass = *find_pass<Op>({span.program, span.begin, binding.runtime()}, variant);
  const bool grad_w = pass.pass == ConvPass::grad_w;
  const int count = sms(binding.runtime());
  auto* at = reinterpret_cast<std::byte*>(aligned(reinterpret_cast<size_t>(binding.workspace())));
  std::byte* const filters = at;
  at += pass.filter_bytes();
  auto* const sums = reinterpret_cast<float*>(at);
  at += pass.sums_bytes(count);
  ConvOperands operands;
  const bool forward = pass.pass == ConvPass::forward, grad_x = pass.pass == ConvPass::grad_x;
  operands.x = (grad_x ? binding.write(pass.result) : binding.read(pass.x)).data;
  operands.y = (forward ? binding.write(pass.result) : binding.read(pass.y)).data;
  if (pass.addend) operands.addend = binding.read(pass.addend).data;
  void* const plain = (grad_w ? binding.write(pass.w) : binding.read(pass.w)).data;
  operands.w = pass.taps() == 1 ? plain : filters;
  if (forward && pass.b) operands.bias = binding.read(pass.b).data;
  const std::string what = describe(span.op(0));
  auto call = cuda_runtime(binding.runtime())
                  .cudnn()
                  .conv_plans(pass.problem())
                  .call(variant.proposal, operands, at, what);
  const auto turn =
      grad_w ? turn_filters(pass, filters, plain) : turn_filters(pass, plain, filters);
  return dispatch_device_half(pass.x.dtype, [&](auto type) {
    using T = decltype(type);
    const MixedOut<T> db = grad_w ? write_mixed<T>(binding, pass.b, pass.x.dtype) : MixedOut<T>{};
    return launch_step(binding, what,
                       [=, call = std::move(call), dy = static_cast<const T*>(operands.y),
                        rows = pass.rows(), k = int(pass.shape.k)](cudaStream_t stream) {
                         cudaError_t status = grad_w ? cudaSuccess : turn(stream);
                         if (status == cudaSuccess) call(stream);
                         if (status == cudaSuccess && grad_w) status = turn(stream);
                         if (status != cudaSuccess || !db) return status;
                         return launch_row_sums<T>(dy, db, rows, k, sums, count, stream);
                       });
  });
}

}  // namespace

KernelTable channels_last_conv_kernels() {
  struct Family {
    const char* name;
    Cover (*covers)(const RemainingOps&, const ConvVariant&);
    std::unique_ptr<Step> (*prepare)(const Span&, const Binding&, const ConvVariant&);
    Epilogue epilogue = Epilogue::none;
  };
  const Family families[] = {
      {"conv2d_add_relu", covers<Conv2d>, prepare<Conv2d>, Epilogue::add_relu},
      {"conv2d_relu_add", covers<Conv2d>, prepare<Conv2d>, Epilogue::relu_add},
      {"conv2d_relu", covers<Conv2d>, prepare<Conv2d>, Epilogue::relu},
      {"conv2d", covers<Conv2d>, prepare<Conv2d>},
      {"conv2d_grad_x_add", covers<Conv2dGradX>, prepare<Conv2dGradX>, Epilogue::add},
      {"conv2d_grad_x", covers<Conv2dGradX>, prepare<Conv2dGradX>},
      {"conv2d_grad_w", covers<Conv2dGradW>, prepare<Conv2dGradW>}};
  // cuDNN builds, and partly compiles, its plans when it is queried.
  const auto traits = [](int proposal) {
    return Traits{.precisions = kHalves,
                  .library = Library::cudnn,
                  .further_proposal = proposal > 0,
                  .slow_to_query = true};
  };
  KernelTable table;
  for (const Family& family : families) {
    for (int proposal = 0; proposal < kProposals; ++proposal) {
      table.push_back(cuda_kernel(
          fmt::format("cuda.{}.cudnn_channels_last.{}", family.name, proposal), family.covers,
          family.prepare, ConvVariant{family.epilogue, proposal}, traits(proposal)));
      table.back().traits.vendor = family.epilogue == Epilogue::none;
    }
  }
  // Blocks add their sums over pixels to memory in no fixed order.
  for (int proposal = 0; proposal < kProposals; ++proposal) {
    table.push_back(
        cuda_kernel(fmt::format("cuda.conv2d_grad_w.cudnn_channels_last_atomic.{}", proposal),
                    covers<Conv2dGradW>, prepare<Conv2dGradW>,
                    ConvVariant{Epilogue::none, proposal, false}, traits(proposal)));
    table.back().traits.deterministic = false;
    table.back().traits.further_proposal = true;  // cuDNN may propose fewer than this
  }
  return table;
}

}  // namespace ridgeline::cuda

#else

namespace ridgeline::cuda {
KernelTable channels_last_conv_kernels() { return {}; }
}  // namespace ridgeline::cuda

#endif
