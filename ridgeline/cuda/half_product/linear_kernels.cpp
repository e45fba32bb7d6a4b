#include "ridgeline/cuda/half_product/linear_kernels.h"

#include "ridgeline/cuda/half_product/kernels.h"
#include "ridgeline/cuda/plain/bias_sum.h"
#include "ridgeline/cuda/plain/bind_mixed_operand.h"

namespace ridgeline::cuda {
namespace {

std::string refuse(const Values& factors, std::initializer_list<Value> mixed) {
  for (const Value& value : factors) {
    if (value.dtype != DType::fp16) return "takes fp16 only";
  }
  for (const Value& value : mixed) {
    if (value && value.dtype != DType::fp16 && !is_mixed(value, DType::fp16)) {
      return "takes biases and gradients in fp16 or fp32 only";
    }
  }
  return {};
}

std::string refuse_extents(int64_t n, int64_t in, int64_t out) {
  std::string reason = refuse_large({n, in, out});
  // A grid has up to 65,535 rows of blocks, each of 16 results or more.
  constexpr int64_t kMostRows = 65535 * 16;
  if (reason.empty() && std::max(n, out) > kMostRows) reason = "too many rows for one grid";
  return reason;
}

Cover covers_linear(const RemainingOps& rest) {
  const auto* op = rest.get<Linear>(0);
  if (op == nullptr) return no_such_op(Linear::kName);
  std::string reason = refuse({op->x, op->w, op->y}, {op->b});
  if (reason.empty()) reason = refuse_extents(op->n(), op->in(), op->out());
  return cover_unless(reason, 1);
}

Cover covers_grad_x(const RemainingOps& rest) {
  const auto* op = rest.get<LinearGradX>(0);
  if (op == nullptr) return no_such_op(LinearGradX::kName);
  std::string reason = refuse({op->dy, op->w, op->dx}, {});
  if (reason.empty()) reason = refuse_extents(op->n(), op->in(), op->out());
  return cover_unless(reason, 1);
}

Cover covers_grad_w(const RemainingOps& rest) {
  const auto* op = rest.get<LinearGradW>(0);
  if (op == nullptr) return no_such_op(LinearGradW::kName);
  std::string reason = refuse({op->x, op->dy}, {op->dw, op->db});
  if (reason.empty()) reason = refuse_extents(op->n(), op->in(), op->out());
  return cover_unless(reason, 1);
}

HalfProduct extents(int64_t m, int64_t n, int64_t k) {
  HalfProduct p;
  p.m = int(m);
  p.n = int(n);
  p.k = int(k);
  return p;
}

HalfOperand rows(const Tensor& tensor, int64_t pitch) { return {tensor.as<__half>(), pitch, 1}; }
HalfOperand columns(const Tensor& tensor, int64_t pitch) { return {tensor.as<__half>(), 1, pitch}; }

using After = std::function<cudaError_t(cudaStream_t)>;

std::unique_ptr<Step> step(const Span& span, const Binding& binding, const HalfProduct& product,
                           const LaunchHalfProduct& launch, After after = {}) {
  return launch_step(binding, describe(span.op(0)),
                     [product, launch, after = std::move(after)](cudaStream_t stream) {
                       const cudaError_t error = launch(product, stream);
                       return error == cudaSuccess && after ? after(stream) : error;
                     });
}

// y[n, out] = x[n, in] . w[out, in]^T + b
std::unique_ptr<Step> prepare_linear(const Span& span, const Binding& binding,
                                     const LaunchHalfProduct& launch) {
  const auto& op = span.get<Linear>(0);
  HalfProduct p = extents(op.n(), op.out(), op.in());
  p.a = rows(binding.read(op.x), op.in());
  p.b = rows(binding.read(op.w), op.in());
  p.bias = read_mixed<__half>(binding, op.b, DType::fp16);
  p.d = write_mixed<__half>(binding, op.y, DType::fp16);
  return step(span, binding, p, launch);
}

// dx[n, in] = dy[n, out] . w[out, in]
std::unique_ptr<Step> prepare_grad_x(const Span& span, const Binding& binding,
                                     const LaunchHalfProduct& launch) {
  const auto& op = span.get<LinearGradX>(0);
  HalfProduct p = extents(op.n(), op.in(), op.out());
  p.a = rows(binding.read(op.dy), op.out());
  p.b = columns(binding.read(op.w), op.in());
  p.d = write_mixed<__half>(binding, op.dx, DType::fp16);
  return step(span, binding, p, launch);
}

// dw[out, in] = dy[n, out]^T . x[n, in]
std::unique_ptr<Step> prepare_grad_w(const Span& span, const Binding& binding,
                                     const LaunchHalfProduct& launch) {
  const auto& op = span.get<LinearGradW>(0);
  HalfProduct p = extents(op.out(), op.in(), op.n());
  p.a = columns(binding.read(op.dy), op.out());
  p.b = columns(binding.read(op.x), op.in());
  p.d = write_mixed<__half>(binding, op.dw, DType::fp16);
  return step(span, binding, p, launch, bias_sum(op, binding));
}

// Only for programs that request such sums; all others must meet the error bounds of fp32 sums.
Cover if_asked_for(const RemainingOps& rest, Cover (*covers)(const RemainingOps&)) {
  if (rest.program.accumulate != Precision::fp16) {
    return Cover::no("sums in fp16, which run.accumulate does not ask for");
  }
  return covers(rest);
}

}  // namespace

KernelTable half_linear_kernels(const std::string& how, const LaunchHalfProduct& launch,
                                Traits traits) {
  traits.precisions = {Precision::fp16};
  traits.least_arch = 75;
  struct Family {
    const char* name;
    Cover (*covers)(const RemainingOps&);
    std::unique_ptr<Step> (*prepare)(const Span&, const Binding&, const LaunchHalfProduct&);
  };
  const Family families[] = {
      {"linear", covers_linear, prepare_linear},
      {"linear_grad_x", covers_grad_x, prepare_grad_x},
      {"linear_grad_w", covers_grad_w, prepare_grad_w},
  };
  KernelTable table;
  for (const Family& family : families) {
    Kernel kernel = cuda_kernel(
        fmt::format("cuda.{}.{}", family.name, how),
        [covers = family.covers, traits](const RemainingOps& rest) {
          return traits.fp16_sums ? if_asked_for(rest, covers) : covers(rest);
        },
        [prepare = family.prepare, launch](const Span& span, const Binding& binding) {
          return prepare(span, binding, launch);
        },
        traits);
    table.push_back(std::move(kernel));
  }
  return concurrent(std::move(table));
}

KernelTable half_product_kernels() {
  const auto summed_in = [](HalfSums sums) {
    return [sums](const HalfProduct& product, cudaStream_t stream) {
      return launch_half_product(product, sums, stream);
    };
  };
  KernelTable table = half_linear_kernels("mma_m16n8k8", summed_in(HalfSums::fp32), {});
  for (Kernel& kernel : half_linear_kernels("mma_m16n8k8_fp16_sums", summed_in(HalfSums::fp16),
                                            {.fp16_sums = true})) {
    table.push_back(std::move(kernel));
  }
  return table;
}

}  // namespace ridgeline::cuda
