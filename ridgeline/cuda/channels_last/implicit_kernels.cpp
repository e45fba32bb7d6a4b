// The gradient of 3 x 3 filters as an implicit product by wgmma.
#include <memory>

#include "ridgeline/cuda/channels_last/batch_norm.h"
#include "ridgeline/cuda/channels_last/format.h"
#include "ridgeline/cuda/channels_last/implicit_grad_w.h"
#include "ridgeline/cuda/channels_last/kernels.h"
#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/bind_mixed_operand.h"

namespace ridgeline::cuda {
namespace {

constexpr size_t kAlignment = 256;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }
int sms(const Runtime& runtime) { return cuda_runtime(runtime).sms(); }
int64_t rows(const Conv2dGradW& op) { return op.n() * op.shape.in.pixels(); }

ImplicitGradWShape shape_of(const Conv2dGradW& op, const Runtime& runtime) {
  const Image& in = op.shape.in;
  return {int(op.n()), int(in.h), int(in.w), int(in.c), int(op.shape.k), sms(runtime)};
}

std::string refuse(const Conv2dGradW& op) {
  const Conv2dShape& shape = op.shape;
  const DType dtype = op.x.dtype;
  if (size_of(dtype) != 2) return "takes bf16 and fp16";
  if (shape.groups != 1) return "takes one group";
  for (const Slide& slide : {shape.window.h, shape.window.w}) {
    if (slide != Slide{3, 1, 1, 1}) return "takes filters of 3 x 3, with stride 1 and padding 1";
  }
  if (shape.in.c % 8 != 0 || shape.k % 8 != 0) return "takes channels by eights";
  if (shape.in.w % 4 != 0) return "takes images whose width is a multiple of four";
  if (shape.in.h < 2) return "takes images of two rows or more";
  const std::string reason =
      refuse_floats({op.x, op.dy, unless_mixed(op.dw, dtype), unless_mixed(op.db, dtype)});
  return reason.empty() ? refuse_large({op.n(), shape.in.numel(), shape.out().numel(),
                                        shape.weight().numel(), rows(op)})
                        : reason;
}

Cover covers(const RemainingOps& rest) {
  const auto* op = rest.get<Conv2dGradW>(0);
  if (op == nullptr) return no_such_op(Conv2dGradW::kName);
  const std::string reason = refuse(*op);
  if (!reason.empty()) return Cover::no(reason);
  Cover cover = Cover::of(1);
  cover.workspace = kAlignment + aligned(shape_of(*op, rest.runtime).workspace());
  if (op->db) cover.workspace += norm_workspace(rows(*op), int(op->shape.k), sms(rest.runtime));
  use_channels_last(cover.reads, op->x, {op->shape.in.c, op->shape.in.pixels()});
  use_channels_last(cover.reads, op->dy, {op->shape.k, op->shape.in.pixels()});
  return cover;
}

std::unique_ptr<Step> prepare(const Span& span, const Binding& binding) {
  const auto& op = span.get<Conv2dGradW>(0);
  const ImplicitGradWShape shape = shape_of(op, binding.runtime());
  auto* const partial =
      reinterpret_cast<std::byte*>(aligned(reinterpret_cast<size_t>(binding.workspace())));
  auto* const sums = reinterpret_cast<float*>(partial + aligned(shape.workspace()));
  return dispatch_device_half(op.x.dtype, [&](auto type) {
    using T = decltype(type);
    const T* const dy = binding.read(op.dy).as<T>();
    const MixedOut<T> db = write_mixed<T>(binding, op.db, op.x.dtype);
    return launch_step(
        binding, describe(span.op(0)),
        [=, count = sms(binding.runtime()), pixels = rows(op),
         launch = prepare_implicit_grad_w<T>(
             shape, binding.read(op.x).as<T>(), dy, reinterpret_cast<float*>(partial),
             write_mixed<T>(binding, op.dw, op.x.dtype))](cudaStream_t stream) {
          const cudaError_t status = launch(stream);
          if (status != cudaSuccess || !db) return status;
          return launch_row_sums<T>(dy, db, pixels, shape.k, sums, count, stream);
        });
  });
}

}  // namespace

KernelTable channels_last_implicit_kernels() {
  return {
      cuda_kernel("cuda.conv2d_grad_w.implicit_channels_last", covers, prepare, kWgmmaOfHalves)};
}

}  // namespace ridgeline::cuda
