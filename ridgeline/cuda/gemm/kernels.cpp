#include "ridgeline/cuda/gemm/kernels.h"

#include "ridgeline/cuda/gemm/products.h"
#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/bias_sum.h"
#include "ridgeline/cuda/plain/elementwise.h"

namespace ridgeline::cuda {
namespace {

// The estimate's first choice is within a tenth of the best on average; the next two often close
// the gap.
constexpr int kProposals = 3;

GemmType gemm_type(DType dtype) {
  return dtype == DType::bf16   ? GemmType::bf16
         : dtype == DType::fp16 ? GemmType::fp16
                                : GemmType::tf32;
}

// Why no kernel takes factors of this type, from x [_, k] with k along its rows.
std::string refuse_type(const RemainingOps& rest, DType dtype) {
  if (dtype == DType::fp64) return "the tensor-core kernels take no fp64";
  if (size_of(dtype) == 2) return {};
  if (rest.program.precision != Precision::tf32)
    return "rounds to tf32, which this run did not ask for";
  return rest.runtime.architecture() == 90 ? "" : "tf32 kernels are built for sm_90a";
}

Cover cover(const RemainingOps& rest, const Values& values, std::initializer_list<int64_t> extents,
            size_t ops, size_t workspace = 0) {
  std::string reason = refuse_type(rest, values[0].dtype);
  if (reason.empty()) reason = refuse_floats(values);
  if (reason.empty()) reason = refuse_large(extents);
  return cover_unless(std::move(reason), ops, workspace);
}

// The bias is read and added in fp32; a half-precision bias is widened first.
bool widens_bias(const Linear& op) { return op.b && op.b.dtype != DType::fp32; }
size_t bias_bytes(const Linear& op) {
  return widens_bias(op) ? size_t(op.out()) * sizeof(float) : 0;
}

// TMA needs rows that are multiples of 16 bytes for tf32.
std::string refuse_linear(const Linear& op) {
  if (widens_bias(op) && op.b.dtype != op.x.dtype) return "takes biases in fp32 or x's type";
  if (op.x.dtype == DType::fp32 && op.in() % 4 != 0) return "tf32 wants inputs by fours";
  return {};
}

Cover covers_linear(const RemainingOps& rest) {
  const auto* op = rest.get<Linear>(0);
  if (op == nullptr) return no_such_op(Linear::kName);
  if (std::string reason = refuse_linear(*op); !reason.empty()) return Cover::no(reason);
  return cover(rest, {op->x, op->w, op->y}, {op->n(), op->in(), op->out()}, 1, bias_bytes(*op));
}

Cover covers_linear_relu(const RemainingOps& rest) {
  const auto* linear = rest.get<Linear>(0);
  const auto* activation = rest.get<Activation>(1);
  if (linear == nullptr || activation == nullptr || activation->x.id != linear->y.id ||
      activation->kind != ActivationKind::relu || !linear->b) {
    return Cover::no("the next ops are no linear with a bias and its relu");
  }
  if (!rest.dead_after(linear->y, 2)) {
    return Cover::no("the input of the activation is needed later");
  }
  if (std::string reason = refuse_linear(*linear); !reason.empty()) return Cover::no(reason);
  Cover both = cover(rest, {linear->x, linear->w, activation->y},
                     {linear->n(), linear->in(), linear->out()}, 2, bias_bytes(*linear));
  if (both.ops > 0) both.skips = {linear->y.id};
  return both;
}

Cover covers_grad_x(const RemainingOps& rest) {
  const auto* op = rest.get<LinearGradX>(0);
  if (op == nullptr) return no_such_op(LinearGradX::kName);
  if (size_of(op->dy.dtype) != 2) return Cover::no("takes bf16 and fp16 only");
  return cover(rest, {op->dy, op->w, op->dx}, {op->n(), op->in(), op->out()}, 1);
}

Cover covers_grad_w(const RemainingOps& rest) {
  const auto* op = rest.get<LinearGradW>(0);
  if (op == nullptr) return no_such_op(LinearGradW::kName);
  if (size_of(op->dy.dtype) != 2) return Cover::no("takes bf16 and fp16 only");
  if (op->db && op->db.dtype != op->dw.dtype) return Cover::no("wants one type of gradients");
  return cover(rest,
               {op->x, op->dy, unless_accumulator(op->dw, op->x.dtype),
                unless_accumulator(op->db, op->x.dtype)},
               {op->n(), op->in(), op->out()}, 1);
}

// The proposal with this number, or the last if there are fewer.
PreparedGemm choose(std::vector<PreparedGemm> list, int proposal, const std::string& what) {
  if (list.empty()) {
    throw_error(ErrorKind::device, "{}: no tensor-core kernel takes operands at these addresses",
                what);
  }
  return std::move(list[std::min(size_t(proposal), list.size() - 1)]);
}

std::unique_ptr<Step> gemm_step(const Binding& binding, const std::string& what,
                                const PreparedGemm& gemm) {
  return launch_step(
      binding, what,
      [run = gemm.run](cudaStream_t stream) {
        run(stream);
        return cudaSuccess;
      },
      gemm.name);
}

// Whether the previous launch may write `value`: some op writes it or, for the first op, the work
// before this program may.
bool may_change_before(const Span& span, const Value& value) {
  return span.begin == 0 || std::ranges::any_of(span.program.uses(value.id), [&](size_t op) {
           return std::ranges::any_of(writes(span.program.ops[op]),
                                      [&](const Value& each) { return each.id == value.id; });
         });
}

std::unique_ptr<Step> prepare_linear(const Span& span, const Binding& binding, int proposal) {
  const auto& op = span.get<Linear>(0);
  const bool relu = span.size() == 2;
  const std::string what = describe(span.op(0));
  auto* bias_fp32 = reinterpret_cast<float*>(binding.workspace());
  const Tensor b = binding.read(op.b);
  const LinearGemm product{gemm_type(op.x.dtype),
                           int(op.n()),
                           int(op.in()),
                           int(op.out()),
                           binding.read(op.x).data,
                           binding.read(op.w).data,
                           widens_bias(op) ? bias_fp32 : b.as<float>(),
                           binding.write(relu ? span.get<Activation>(1).y : op.y).data,
                           relu,
                           !may_change_before(span, op.w)};
  const PreparedGemm gemm = choose(linear_gemms(product), proposal, what);
  if (widens_bias(op)) {
    return dispatch_device_half(op.b.dtype, [&](auto type) {
      using T = decltype(type);
      return launch_step(
          binding, what,
          [run = gemm.run, b = b.as<T>(), bias_fp32, out = op.out()](cudaStream_t stream) {
            const cudaError_t error = launch_widen<T>(b, bias_fp32, out, stream);
            if (error == cudaSuccess) run(stream);
            return error;
          },
          gemm.name);
    });
  }
  return gemm_step(binding, what, gemm);
}

std::unique_ptr<Step> prepare_grad_x(const Span& span, const Binding& binding, int proposal) {
  const auto& op = span.get<LinearGradX>(0);
  const std::string what = describe(span.op(0));
  const LinearGradXGemm product{gemm_type(op.dy.dtype),
                                int(op.n()),
                                int(op.in()),
                                int(op.out()),
                                binding.read(op.dy).data,
                                binding.read(op.w).data,
                                binding.write(op.dx).data};
  return gemm_step(binding, what, choose(linear_grad_x_gemms(product), proposal, what));
}

std::unique_ptr<Step> prepare_grad_w(const Span& span, const Binding& binding, int proposal) {
  const auto& op = span.get<LinearGradW>(0);
  const std::string what = describe(span.op(0));
  const LinearGradWGemm product{gemm_type(op.x.dtype),
                                int(op.n()),
                                int(op.in()),
                                int(op.out()),
                                binding.read(op.x).data,
                                binding.read(op.dy).data,
                                binding.write(op.dw).data,
                                is_accumulator(op.dw, op.x.dtype)};
  const PreparedGemm gemm = choose(linear_grad_w_gemms(product), proposal, what);
  return launch_step(
      binding, what,
      [run = gemm.run, sum_bias = bias_sum(op, binding)](cudaStream_t stream) {
        run(stream);
        return sum_bias(stream);
      },
      gemm.name);
}

}  // namespace

KernelTable gemm_kernels() {
  struct Family {
    const char* name;
    Cover (*covers)(const RemainingOps&);
    std::unique_ptr<Step> (*prepare)(const Span&, const Binding&, int proposal);
    Traits traits;
  };
  constexpr Traits kGrads{.precisions = kHalves, .least_arch = 80};
  const Family families[] = {
      {"linear_relu", covers_linear_relu, prepare_linear, kMma},
      {"linear", covers_linear, prepare_linear, kMma},
      {"linear_grad_x", covers_grad_x, prepare_grad_x, kGrads},
      {"linear_grad_w", covers_grad_w, prepare_grad_w, kGrads},
  };
  KernelTable table;
  for (const Family& family : families) {
    for (int proposal = 0; proposal < kProposals; ++proposal) {
      table.push_back(cuda_kernel(
          fmt::format("cuda.{}.tensor.{}", family.name, proposal), family.covers,
          [family, proposal](const Span& span, const Binding& binding) {
            return family.prepare(span, binding, proposal);
          },
          family.traits));
    }
  }
  return concurrent(std::move(table));
}

}  // namespace ridgeline::cuda
