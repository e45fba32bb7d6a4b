#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/vendor/kernels.h"

#ifdef RIDGELINE_HAVE_CUDNN

#include <vector>

#include "ridgeline/cuda/libraries/conv_plans.h"
#include "ridgeline/cuda/plain/bind_mixed_operand.h"
#include "ridgeline/cuda/plain/conv.h"
#include "ridgeline/cuda/plain/geometry.h"
#include "ridgeline/cuda/plain/transpose.h"

namespace ridgeline::cuda {
namespace {

constexpr int kProposals = 4;

ConvProblem problem_of(ConvPass pass, const Conv2dShape& shape, int64_t n, const Value& read,
                       const Value& written, Precision precision) {
  ConvProblem problem;
  problem.pass = pass;
  problem.shape = shape;
  problem.n = n;
  problem.dtype = read.dtype;
  problem.written = written.dtype;
  // The kernels for half types take channels-last; those for fp32 and fp64 take channels-first.
  problem.channels_last = size_of(read.dtype) == 2;
  problem.exact = precision != Precision::tf32;
  return problem;
}

ConvProblem problem_of(const Conv2d& op, Precision precision) {
  ConvProblem problem = problem_of(ConvPass::forward, op.shape, op.n(), op.x, op.y, precision);
  // For half types the bias must be added before rounding; otherwise it may follow.
  if (op.b && problem.channels_last) problem.bias = op.b.dtype;
  return problem;
}
ConvProblem problem_of(const Conv2dGradX& op, Precision precision) {
  return problem_of(ConvPass::grad_x, op.shape, op.n(), op.dy, op.dx, precision);
}
ConvProblem problem_of(const Conv2dGradW& op, Precision precision) {
  return problem_of(ConvPass::grad_w, op.shape, op.n(), op.x, op.dw, precision);
}

std::string refuse(const Conv2d& op) {
  return refuse_floats({op.x, op.w, unless_mixed(op.b, op.x.dtype), op.y});
}
std::string refuse(const Conv2dGradX& op) { return refuse_floats({op.dy, op.w, op.dx}); }
std::string refuse(const Conv2dGradW& op) {
  return refuse_floats(
      {op.x, op.dy, unless_mixed(op.dw, op.x.dtype), unless_mixed(op.db, op.x.dtype)});
}

size_t aligned(size_t bytes) {
  return (bytes + ConvPlans::kAlignment - 1) / ConvPlans::kAlignment * ConvPlans::kAlignment;
}

// `count` matrices to transpose before a pass, or after it.
struct Transpose {
  DType dtype = DType::fp32;
  const void* from = nullptr;
  void* to = nullptr;
  int rows = 0, columns = 0, count = 0;

  cudaError_t run(cudaStream_t stream) const {
    return dispatch_device_float(dtype, [&](auto type) {
      using T = decltype(type);
      return launch_transpose(static_cast<const T*>(from), static_cast<T*>(to), rows, columns,
                              count, stream);
    });
  }
};

// The operands in the layout cuDNN needs: in place, or transposed in the workspace.
class Operands {
 public:
  // Without a workspace, this only counts its bytes.
  Operands(const ConvProblem& problem, ConvOperands plain, std::byte* workspace)
      : problem_(problem), operands_(plain), workspace_(workspace) {
    const auto at = reinterpret_cast<uintptr_t>(workspace);
    used_ = aligned(at) - at;
    if (!problem.channels_last) return;
    const Conv2dShape& shape = problem.shape;
    const Image in = shape.in, out = shape.out();
    const int n = int(problem.n), taps = int(shape.window.h.kernel * shape.window.w.kernel);
    transpose(operands_.x, ConvPass::grad_x, int(in.c), int(in.pixels()), n);
    transpose(operands_.w, ConvPass::grad_w, int(shape.group_in()), taps, int(shape.k));
    transpose(operands_.y, ConvPass::forward, int(out.c), int(out.pixels()), n);
  }

  const ConvOperands& get() const { return operands_; }
  void* rest() const { return workspace_ == nullptr ? nullptr : workspace_ + used_; }
  // This includes the alignment of the start.
  size_t bytes() const { return used_ + ConvPlans::kAlignment; }
  const std::vector<Transpose>& before() const { return before_; }
  const std::vector<Transpose>& after() const { return after_; }

 private:
  // The pass `writes` writes this operand; every other pass reads it.
  void transpose(const void*& operand, ConvPass writes, int rows, int columns, int count) {
    const bool written = problem_.pass == writes;
    const DType dtype = written ? problem_.written : problem_.dtype;
    if (written) {
      after_.push_back({dtype, rest(), const_cast<void*>(operand), columns, rows, count});
    } else {
      before_.push_back({dtype, operand, rest(), rows, columns, count});
    }
    operand = rest();
    used_ += aligned(size_t(rows) * size_t(columns) * size_t(count) * size_of(dtype));
  }

  const ConvProblem& problem_;
  ConvOperands operands_;
  std::byte* workspace_ = nullptr;
  size_t used_ = 0;  // bytes of the workspace
  std::vector<Transpose> before_, after_;
};

template <typename Op>
Cover covers(const RemainingOps& rest, int proposal) {
  const auto* op = rest.get<Op>(0);
  if (op == nullptr) return no_such_op(Op::kName);
  const Cudnn& library = cuda_runtime(rest.runtime).cudnn();
  if (!library.refusal().empty()) return Cover::no(library.refusal());
  std::string reason = refuse(*op);
  if (reason.empty()) {
    const Conv2dShape& shape = op->shape;
    reason = refuse_large({op->n(), shape.in.numel(), shape.out().numel(), shape.weight().numel()});
  }
  if (!reason.empty()) return Cover::no(reason);
  const ConvProblem problem = problem_of(*op, rest.program.precision);
  const auto bytes = library.conv_plans(problem).workspace(proposal);
  if (!bytes) return Cover::no(fmt::format("cuDNN offers fewer than {} algorithms", proposal + 1));
  return cover_unless({}, 1, Operands(problem, {}, nullptr).bytes() + *bytes);
}

// A step of a pass; `after` follows it on the stream.
template <typename Op, typename After>
std::unique_ptr<Step> pass_step(const Span& span, const Binding& binding, const Op& op,
                                const ConvOperands& plain, int proposal, After after) {
  const ConvProblem problem = problem_of(op, span.program.precision);
  const Operands operands(problem, plain, binding.workspace());
  const std::string what = describe(span.op(0));
  auto call = cuda_runtime(binding.runtime())
                  .cudnn()
                  .conv_plans(problem)
                  .call(proposal, operands.get(), operands.rest(), what);
  return launch_step(binding, what,
                     [before = operands.before(), transposes = operands.after(),
                      call = std::move(call), after](cudaStream_t stream) {
                       cudaError_t status = cudaSuccess;
                       const auto run = [&](const std::vector<Transpose>& all) {
                         for (const Transpose& transpose : all) {
                           if (status == cudaSuccess) status = transpose.run(stream);
                         }
                       };
                       run(before);
                       if (status == cudaSuccess) call(stream);
                       run(transposes);
                       return status == cudaSuccess ? after(stream) : status;
                     });
}

constexpr auto kNothing = [](cudaStream_t) { return cudaSuccess; };

std::unique_ptr<Step> prepare_conv(const Span& span, const Binding& binding, int proposal) {
  const auto& op = span.get<Conv2d>(0);
  ConvOperands plain{binding.read(op.x).data, binding.read(op.w).data, binding.write(op.y).data};
  if (op.b) plain.bias = binding.read(op.b).data;
  if (!op.b || problem_of(op, span.program.precision).bias) {
    return pass_step(span, binding, op, plain, proposal, kNothing);
  }
  return dispatch_device_float(op.y.dtype, [&](auto type) {
    using T = decltype(type);
    return pass_step(span, binding, op, plain, proposal,
                     [b = read_mixed<T>(binding, op.b, op.x.dtype), y = binding.write(op.y).as<T>(),
                      g = geometry_of(op.shape, op.n())](cudaStream_t stream) {
                       return launch_conv2d_add_bias<T>(g, b, y, stream);
                     });
  });
}

std::unique_ptr<Step> prepare_grad_x(const Span& span, const Binding& binding, int proposal) {
  const auto& op = span.get<Conv2dGradX>(0);
  const ConvOperands plain{binding.write(op.dx).data, binding.read(op.w).data,
                           binding.read(op.dy).data};
  return pass_step(span, binding, op, plain, proposal, kNothing);
}

// Our own kernel sums the bias gradient, in the accumulator dtype.
std::unique_ptr<Step> prepare_grad_w(const Span& span, const Binding& binding, int proposal) {
  const auto& op = span.get<Conv2dGradW>(0);
  const ConvOperands plain{binding.read(op.x).data, binding.write(op.dw).data,
                           binding.read(op.dy).data};
  return dispatch_device_float(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    return pass_step(
        span, binding, op, plain, proposal,
        [db = write_mixed<T>(binding, op.db, op.x.dtype), dy = binding.read(op.dy).as<T>(),
         g = geometry_of(op.shape, op.n())](cudaStream_t stream) {
          return db ? launch_conv2d_grad_b<T>(g, dy, db, stream) : cudaSuccess;
        });
  });
}

}  // namespace

KernelTable cudnn_kernels() {
  struct Family {
    const char* name;
    Cover (*covers)(const RemainingOps&, int proposal);
    std::unique_ptr<Step> (*prepare)(const Span&, const Binding&, int proposal);
  };
  const Family families[] = {{"conv2d", covers<Conv2d>, prepare_conv},
                             {"conv2d_grad_x", covers<Conv2dGradX>, prepare_grad_x},
                             {"conv2d_grad_w", covers<Conv2dGradW>, prepare_grad_w}};
  KernelTable table;
  for (const Family& family : families) {
    for (int proposal = 0; proposal < kProposals; ++proposal) {
      table.push_back(cuda_kernel(fmt::format("cuda.{}.cudnn.{}", family.name, proposal),
                                  family.covers, family.prepare, proposal,
                                  // cuDNN builds, and partly compiles, its plans when it is
                                  // queried.
                                  {.library = Library::cudnn,
                                   .vendor = true,
                                   .further_proposal = proposal > 0,
                                   .slow_to_query = true}));
    }
  }
  return table;
}

}  // namespace ridgeline::cuda

#else

namespace ridgeline::cuda {
KernelTable cudnn_kernels() { return {}; }
}  // namespace ridgeline::cuda

#endif
