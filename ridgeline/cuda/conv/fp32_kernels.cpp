// Convolutions and their gradients in fp32 multiply-adds.
#include "ridgeline/cuda/conv/kernels.h"
#include "ridgeline/cuda/conv/register_tiled.h"
#include "ridgeline/cuda/conv/spans.h"
#include "ridgeline/cuda/conv/winograd1d.h"
#include "ridgeline/cuda/conv/winograd1d_grad_w.h"
#include "ridgeline/cuda/graph_order.h"

namespace ridgeline::cuda {
namespace {

// Why none of these kernels takes a convolution of n images with these values; "" if some may.
std::string refuse_fp32(const Conv2dShape& conv, int64_t n, const Values& values) {
  if (values[0].dtype != DType::fp32) return "takes fp32 only";
  std::string reason = refuse_window(conv);
  if (reason.empty()) reason = refuse_floats(values);
  if (!reason.empty()) return reason;
  return refuse_large({n, conv.in.numel(), conv.out().numel(), conv.weight().numel()});
}

// ---- a convolution, alone or with its pool, and the gradient of its input ----

// A family of kernels: `pack_filters` packs the filters into the workspace, and `convolve` reads
// them from there.
struct Fp32Kernels {
  const char* (*refuse)(const ImplicitShape&, size_t shared_memory);
  size_t (*workspace)(const ImplicitShape&, size_t shared_memory);
  cudaError_t (*pack_filters)(const ImplicitArgs<float>&, size_t shared_memory, float*,
                              cudaStream_t);
  cudaError_t (*convolve)(const ImplicitArgs<float>&, const PooledOutput<float>&,
                          size_t shared_memory, const float*, cudaStream_t);
};
constexpr Fp32Kernels kWinograd1d{refuse_conv2d_winograd1d, conv2d_winograd1d_workspace,
                                  launch_conv2d_winograd1d_pack_filters, launch_conv2d_winograd1d};
constexpr Fp32Kernels kRegisterTiled{refuse_conv2d_register_tiled, conv2d_register_tiled_workspace,
                                     launch_conv2d_register_tiled_pack_filters,
                                     launch_conv2d_register_tiled};

template <const Fp32Kernels& kKernels>
std::string refuse(const RemainingOps& rest, const ConvProduct& product) {
  std::string reason = refuse_fp32(product.conv, product.x.shape[0], product.values());
  if (!reason.empty()) return reason;
  return kKernels.refuse(product.shape(), shared_memory(rest.runtime));
}

template <const Fp32Kernels& kKernels>
size_t workspace(const Runtime& runtime, const ConvProduct& product) {
  return kKernels.workspace(product.shape(), shared_memory(runtime));
}

// A separate part of the step packs the filters; it need not wait for the ops that make x.
template <const Fp32Kernels& kKernels>
std::unique_ptr<Step> prepare(const Binding& binding, const std::string& what,
                              const ConvProduct& product) {
  const auto args = product.args<float>(binding);
  const size_t memory = shared_memory(binding.runtime());
  auto* packed_filters = reinterpret_cast<float*>(binding.workspace());
  const auto arrange = [=](cudaStream_t stream) {
    return kKernels.pack_filters(args, memory, packed_filters, stream);
  };
  const auto convolve = [=, pool = product.pool<float>(binding)](cudaStream_t stream) {
    return kKernels.convolve(args, pool, memory, packed_filters, stream);
  };
  return launch_in_order(binding, what, workspace<kKernels>(binding.runtime(), product),
                         {{product.w}, {}, {}, false, arrange},
                         {{product.x, product.b}, product.writes(), {}, false, convolve});
}

template <const Fp32Kernels& kKernels>
KernelTable kernels_of(const std::string& how) {
  return product_kernels(how, {refuse<kKernels>, workspace<kKernels>, prepare<kKernels>});
}

// ---- the gradient of the filters ----

Cover covers_grad_w(const RemainingOps& rest) {
  const auto* op = rest.get<Conv2dGradW>(0);
  if (op == nullptr) return no_such_op(Conv2dGradW::kName);
  std::string reason = refuse_fp32(op->shape, op->n(), {op->x, op->dy, op->dw, op->db});
  const ImplicitShape of = implicit_shape(op->shape, op->n());
  const size_t memory = shared_memory(rest.runtime);
  if (reason.empty()) reason = refuse_winograd1d_grad_w(of, memory);
  if (!reason.empty()) return Cover::no(reason);
  return cover_unless({}, 1,
                      winograd1d_grad_w_workspace(of, cuda_runtime(rest.runtime).sms(), memory));
}

std::unique_ptr<Step> prepare_grad_w(const Span& span, const Binding& binding) {
  const auto& op = span.get<Conv2dGradW>(0);
  const GradWArgs args{implicit_shape(op.shape, op.n()), binding.read(op.x).as<float>(),
                       binding.read(op.dy).as<float>(), binding.write(op.dw).as<float>(),
                       binding.write(op.db).as<float>()};
  return launch_step(
      binding, describe(span.op(0)),
      [args, workspace = binding.workspace(), sms = cuda_runtime(binding.runtime()).sms(),
       memory = shared_memory(binding.runtime())](cudaStream_t stream) {
        return launch_conv2d_grad_w_winograd1d(args, workspace, sms, memory, stream);
      });
}

}  // namespace

KernelTable fp32_conv_kernels() {
  KernelTable table = kernels_of<kWinograd1d>("winograd1d");
  for (Kernel& kernel : kernels_of<kRegisterTiled>("register_tiled"))
    table.push_back(std::move(kernel));
  return concurrent(with_traits(kFp32Fma, std::move(table)));
}

KernelTable fp32_grad_w_kernels() {
  return concurrent(
      {cuda_kernel("cuda.conv2d_grad_w.winograd1d", covers_grad_w, prepare_grad_w, kFp32Fma)});
}

}  // namespace ridgeline::cuda
