// Convolutions of few channels on tensor cores, in one span with the pool that follows.
#include "ridgeline/cuda/conv/kernels.h"
#include "ridgeline/cuda/conv/small_cin.h"
#include "ridgeline/cuda/conv/spans.h"
#include "ridgeline/cuda/plain/bind_mixed_operand.h"

namespace ridgeline::cuda {
namespace {

Cover covers_small_cin(const RemainingOps& rest, bool gathers) {
  const auto found = find_convs(rest, gathers, 1);
  if (!found) return Cover::no("the next ops are no convolution and its pool");
  const Conv2d& conv = *found->first.conv;
  std::string reason = refuse_pooled(rest, found->first);
  if (reason.empty()) {
    reason = refuse_small_cin(implicit_shape(conv.shape, conv.n()), size_of(conv.x.dtype),
                              shared_memory(rest.runtime));
  }
  Values inner{conv.y};
  if (reason.empty()) reason = keep_activation(rest, found->first, found->ops(), inner);
  if (!reason.empty()) return Cover::no(reason);
  if (gathers && rest.dead_after(conv.x, found->ops())) inner.push_back(conv.x);
  return cover_skipping(rest, inner, found->ops());
}

std::unique_ptr<Step> prepare_small_cin(const Span& span, const Binding& binding, bool gathers) {
  const ConvSpan found = find_convs(span, binding.runtime(), gathers, 1);
  const Conv2d& conv = *found.first.conv;
  return dispatch_factor(conv.x.dtype, [&](auto type) {
    using T = decltype(type);
    SmallCinArgs<T> args{implicit_shape(conv.shape, conv.n()),
                         source_of(found.front, conv, binding),
                         {},
                         binding.read(conv.w).as<T>(),
                         read_mixed<T>(binding, conv.b, conv.x.dtype),
                         pooled_output<T>(found.first, binding),
                         binding.write(found.first.pool->y).as<T>()};
    const GatherArgs labels = labels_of(found.front, binding);
    if (gathers) {
      args.gathered = {binding.write(conv.x).as<T>(), labels.labels, labels.label,
                       int(labels.label_size)};
    }
    return launch_step(binding, describe(Op{conv}),
                       [args, sms = cuda_runtime(binding.runtime()).sms()](cudaStream_t stream) {
                         return launch_conv2d_pool_small_cin<T>(args, sms, stream);
                       });
  });
}

}  // namespace

KernelTable pooled_conv_kernels() {
  KernelTable table;
  for (const bool gathers : {true, false}) {
    table.push_back(
        cuda_kernel(fmt::format("cuda.{}conv2d_pool.small_cin", gathers ? "gather_" : ""),
                    covers_small_cin, prepare_small_cin, gathers));
  }
  return concurrent(with_traits(kMma, std::move(table)));
}

}  // namespace ridgeline::cuda
