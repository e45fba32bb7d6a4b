#include "ridgeline/cuda/ladder/kernels.h"

#include "ridgeline/cuda/half_product/linear_kernels.h"
#include "ridgeline/cuda/ladder/conv_levels.h"
#include "ridgeline/cuda/ladder/product_levels.h"
#include "ridgeline/cuda/plain/geometry.h"

namespace ridgeline::cuda {
namespace {

Cover covers_conv(const RemainingOps& rest, ConvLevel level) {
  const auto* op = rest.get<Conv2d>(0);
  if (op == nullptr) return no_such_op(Conv2d::kName);
  std::string reason = refuse_floats({op->x, op->w, op->b, op->y});
  if (op->x.dtype != DType::fp32) reason = "takes fp32 only";
  if (reason.empty()) reason = refuse_large({op->n(), op->shape.in.numel(), op->y.shape.numel()});
  if (reason.empty()) {
    if (const char* why = refuse_conv_level(geometry_of(op->shape, op->n()), level)) reason = why;
  }
  return cover_unless(reason, 1);
}

std::unique_ptr<Step> prepare_conv(const Span& span, const Binding& binding, ConvLevel level) {
  const auto& op = span.get<Conv2d>(0);
  return launch_step(binding, describe(span.op(0)),
                     [g = geometry_of(op.shape, op.n()), level, x = binding.read(op.x).as<float>(),
                      w = binding.read(op.w).as<float>(), b = binding.read(op.b).as<float>(),
                      y = binding.write(op.y).as<float>()](cudaStream_t stream) {
                       return launch_conv_level(g, level, x, w, b, y, stream);
                     });
}

KernelTable conv_level_kernels() {
  KernelTable table;
  for (const auto& [level, how] : {std::pair{ConvLevel::constant_mask, "constant_mask"},
                                   std::pair{ConvLevel::register_sums, "register_sums"},
                                   std::pair{ConvLevel::unrolled, "unrolled_7x7"}}) {
    table.push_back(cuda_kernel(fmt::format("cuda.conv2d.{}", how), covers_conv, prepare_conv,
                                level, {.precisions = kStoredInFp32, .demonstration = true}));
  }
  return table;
}

KernelTable product_level_kernels() {
  constexpr std::pair<ProductLevel, const char*> kLevels[] = {
      {ProductLevel::naive, "naive"},           {ProductLevel::block_tile, "block_tile"},
      {ProductLevel::warp_tile, "warp_tile"},   {ProductLevel::tensor_cores, "tensor_cores"},
      {ProductLevel::parallel_k, "parallel_k"},
  };
  KernelTable table;
  for (const auto& [level, how] : kLevels) {
    const auto launch = [level = level](const HalfProduct& product, cudaStream_t stream) {
      return launch_product_level(product, level, stream);
    };
    for (Kernel& kernel : half_linear_kernels(how, launch, {.demonstration = true})) {
      table.push_back(std::move(kernel));
    }
  }
  return table;
}

}  // namespace

KernelTable ladder_kernels() {
  KernelTable table = product_level_kernels();
  for (Kernel& kernel : conv_level_kernels()) table.push_back(std::move(kernel));
  return table;
}

}  // namespace ridgeline::cuda
