// Convolutions and their gradients in fp32 multiply-adds.
#include "ridgeline/cuda/conv/direct_grad_w.h"
#include "ridgeline/cuda/conv/rows.h"
#include "ridgeline/cuda/conv/spans.h"
#include "ridgeline/cuda/conv/strips.h"
#include "ridgeline/cuda/conv/toom.h"
#include "ridgeline/cuda/conv/toom_grad_w.h"
#include "ridgeline/cuda/graph_order.h"

namespace ridgeline::cuda {
namespace {

// Why none of these kernels takes a convolution over n images of such values; "" when some may.
std::string refuse_fp32(const Rest& rest, const Conv2dShape& conv, int64_t n,
                        const Values& values) {
  if (values[0].dtype != DType::fp32) return "takes fp32 only";
  if (cuda_runtime(rest.runtime).architecture() < 80) return "needs sm_80 or later";
  std::string reason = refuse_window(conv);
  if (reason.empty()) reason = refuse_floats(values);
  if (!reason.empty()) return reason;
  return refuse_large({n, conv.in.numel(), conv.out().numel(), conv.weight().numel()});
}

// ---- a convolution, alone or with its pool, and its input's gradient ----

// A family of kernels: `words` arranges the filters in a workspace, `convolve` reads them there.
struct Fp32Kernels {
  const char* (*refuse)(const ImplicitShape&, size_t shared_memory);
  size_t (*workspace)(const ImplicitShape&, size_t shared_memory);
  cudaError_t (*words)(const ImplicitArgs<float>&, size_t shared_memory, float*, cudaStream_t);
  cudaError_t (*convolve)(const ImplicitArgs<float>&, const PooledOutput<float>&,
                          size_t shared_memory, const float*, cudaStream_t);
};
constexpr Fp32Kernels kToom{refuse_conv2d_toom, conv2d_toom_workspace, launch_conv2d_toom_words,
                            launch_conv2d_toom};
constexpr Fp32Kernels kStrips{refuse_conv2d_strips, conv2d_strips_workspace,
                              launch_conv2d_strips_words, launch_conv2d_strips};

template <const Fp32Kernels& kKernels>
std::string refuse(const Rest& rest, const ConvProduct& product) {
  std::string reason = refuse_fp32(rest, product.conv, product.x.shape[0], product.values());
  if (!reason.empty()) return reason;
  return kKernels.refuse(product.shape(), shared_memory(rest.runtime));
}

template <const Fp32Kernels& kKernels>
size_t workspace(const Runtime& runtime, const ConvProduct& product) {
  return kKernels.workspace(product.shape(), shared_memory(runtime));
}

// The filters are arranged by a piece of their own, which need not wait for what x is made of.
template <const Fp32Kernels& kKernels>
std::unique_ptr<Step> prepare(const Binding& binding, const std::string& what,
                              const ConvProduct& product) {
  const auto args = product.args<float>(binding);
  const size_t memory = shared_memory(binding.runtime());
  auto* words = reinterpret_cast<float*>(binding.workspace());
  const auto arrange = [=](cudaStream_t stream) {
    return kKernels.words(args, memory, words, stream);
  };
  const auto convolve = [=, pool = product.pool<float>(binding)](cudaStream_t stream) {
    return kKernels.convolve(args, pool, memory, words, stream);
  };
  return launch_in_turn(binding, what, workspace<kKernels>(binding.runtime(), product),
                        {{product.w}, {}, {}, false, arrange},
                        {{product.x, product.b}, product.writes(), {}, false, convolve});
}

template <const Fp32Kernels& kKernels>
Table rows_of(const std::string& how) {
  return product_rows(how, {refuse<kKernels>, workspace<kKernels>, prepare<kKernels>});
}

// ---- the gradient of its filters ----

struct GradWKernels {
  const char* how;
  const char* (*refuse)(const ImplicitShape&, size_t shared_memory);
  size_t (*workspace)(const ImplicitShape&, int processors, size_t shared_memory);
  cudaError_t (*launch)(const DirectGradWArgs&, void* workspace, int processors,
                        size_t shared_memory, cudaStream_t);
};
constexpr GradWKernels kGradW[] = {
    {"toom", refuse_toom_grad_w, toom_grad_w_workspace, launch_conv2d_grad_w_toom},
    {"direct", refuse_direct_grad_w,
     [](const ImplicitShape& shape, int processors, size_t) {
       return direct_grad_w_workspace(shape, processors);
     },
     [](const DirectGradWArgs& args, void* workspace, int processors, size_t, cudaStream_t stream) {
       return launch_conv2d_grad_w_direct(args, workspace, processors, stream);
     }}};

Cover covers_grad_w(const Rest& rest, const GradWKernels& kernels) {
  const auto* op = rest.get<Conv2dGradW>(0);
  if (op == nullptr) return no_such_op(Conv2dGradW::kName);
  std::string reason = refuse_fp32(rest, op->shape, op->n(), {op->x, op->dy, op->dw, op->db});
  const ImplicitShape of = implicit_shape(op->shape, op->n());
  const size_t memory = shared_memory(rest.runtime);
  if (reason.empty()) reason = kernels.refuse(of, memory);
  if (!reason.empty()) return Cover::no(reason);
  return cover_unless({}, 1,
                      kernels.workspace(of, cuda_runtime(rest.runtime).processors(), memory));
}

std::unique_ptr<Step> prepare_grad_w(const Span& span, const Binding& binding,
                                     const GradWKernels& kernels) {
  const auto& op = span.get<Conv2dGradW>(0);
  const DirectGradWArgs args{implicit_shape(op.shape, op.n()), binding.read(op.x).as<float>(),
                             binding.read(op.dy).as<float>(), binding.write(op.dw).as<float>(),
                             binding.write(op.db).as<float>()};
  return launch_step(binding, describe(span.op(0)),
                     [args, workspace = binding.workspace(), launch = kernels.launch,
                      processors = cuda_runtime(binding.runtime()).processors(),
                      memory = shared_memory(binding.runtime())](cudaStream_t stream) {
                       return launch(args, workspace, processors, memory, stream);
                     });
}

}  // namespace

Table fp32_conv_rows() {
  Table table = rows_of<kToom>("toom");
  for (Impl& row : rows_of<kStrips>("strips")) table.push_back(std::move(row));
  return table;
}

Table fp32_grad_w_rows() {
  Table table;
  for (const GradWKernels& kernels : kGradW) {
    table.push_back(cuda_row(std::string("cuda.conv2d_grad_w.") + kernels.how, covers_grad_w,
                             prepare_grad_w, kernels));
  }
  return table;
}

}  // namespace ridgeline::cuda
