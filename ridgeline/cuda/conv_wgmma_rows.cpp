// Convolutions on Hopper's warpgroup products, alone and in one span with the pool that follows.
#include "ridgeline/cuda/conv/wgmma.h"
#include "ridgeline/cuda/conv_rows.h"
#include "ridgeline/cuda/conv_spans.h"
#include "ridgeline/cuda/graph_order.h"
#include "ridgeline/cuda/plain/loose_bind.h"

namespace ridgeline::cuda {
namespace {

std::string refuse_wgmma(const Rest& rest, const ImplicitShape& shape, DType dtype, bool pooled) {
  if (cuda_runtime(rest.runtime).architecture() != 90) return "built for sm_90a";
  return refuse_conv2d_wgmma(shape, size_of(dtype), pooled, shared_memory(rest.runtime));
}

size_t workspace_of(const Runtime& runtime, const ImplicitShape& shape, DType dtype, bool pooled) {
  return conv2d_wgmma_workspace(shape, size_of(dtype), pooled, shared_memory(runtime));
}

// The filters are arranged by a piece of their own, which need not wait for what x is made of.
template <typename T>
std::unique_ptr<Step> two_pieces(const Binding& binding, std::string what, const Value& w,
                                 const Values& reads, const Values& writes,
                                 const ImplicitArgs<T>& args, const PooledOutput<T>& pool) {
  const size_t memory = shared_memory(binding.runtime());
  const size_t bytes = conv2d_wgmma_workspace(args.shape, sizeof(T), pool.pooled, memory);
  void* words = binding.workspace();
  StepPiece arrange{{w}, {}, {}, false, [=](cudaStream_t stream) {
                      return launch_conv2d_wgmma_words<T>(args, pool.pooled, memory, words, stream);
                    }};
  StepPiece product{reads, writes, {}, false, [=](cudaStream_t stream) {
                      return launch_conv2d_wgmma<T>(args, pool, memory, words, stream);
                    }};
  return launch_in_turn(binding, std::move(what), bytes, std::move(arrange), std::move(product));
}

template <typename Op>
Cover covers_product(const Rest& rest) {
  const auto* op = rest.get<Op>(0);
  if (op == nullptr) return no_such_op(Op::kName);
  const ConvProduct product(*op);
  const ImplicitShape shape = product.shape();
  std::string reason = product.refuse(rest, refuse_window);
  if (reason.empty()) reason = refuse_wgmma(rest, shape, product.dtype(), false);
  if (!reason.empty()) return Cover::no(reason);
  return cover_unless({}, 1, workspace_of(rest.runtime, shape, product.dtype(), false));
}

template <typename Op>
std::unique_ptr<Step> prepare_product(const Span& span, const Binding& binding) {
  const ConvProduct product(span.get<Op>(0));
  return dispatch_factor(product.dtype(), [&](auto type) {
    using T = decltype(type);
    return two_pieces<T>(binding, describe(span.op(0)), product.w, {product.x, product.b},
                         {product.y}, product.args<T>(binding), {});
  });
}

Cover covers_conv_pool(const Rest& rest) {
  const auto found = find_convs(rest, false, 1);
  if (!found) return Cover::no("the next ops are no convolution and its pool");
  const Conv2d& conv = *found->first.conv;
  const ImplicitShape shape = implicit_shape(conv.shape, conv.n());
  std::string reason = refuse_pooled(rest, found->first);
  if (reason.empty()) reason = refuse_wgmma(rest, shape, conv.x.dtype, true);
  Values inner{conv.y};
  if (reason.empty()) reason = keep_activation(rest, found->first, found->ops(), inner);
  if (!reason.empty()) return Cover::no(reason);
  Cover cover = cover_skipping(rest, inner, found->ops());
  cover.workspace = workspace_of(rest.runtime, shape, conv.x.dtype, true);
  return cover;
}

std::unique_ptr<Step> prepare_conv_pool(const Span& span, const Binding& binding) {
  const PooledConv layer = find_convs(span, binding.runtime(), false, 1).first;
  const Conv2d& conv = *layer.conv;
  return dispatch_factor(conv.x.dtype, [&](auto type) {
    using T = decltype(type);
    const ImplicitArgs<T> args{
        implicit_shape(conv.shape, conv.n()), binding.read(conv.x).as<T>(),
        binding.read(conv.w).as<T>(),         loose_read<T>(binding, conv.b, conv.x.dtype),
        binding.write(layer.pool->y).as<T>(), false};
    Values writes{layer.pool->y};
    if (layer.activation != nullptr) writes.push_back(layer.activation->y);
    return two_pieces<T>(binding, describe(Op{conv}), conv.w, {conv.x, conv.b}, writes, args,
                         pooled_output<T>(layer, binding));
  });
}

}  // namespace

Table wgmma_conv_rows() {
  return {cuda_row("cuda.conv2d_pool.wgmma", covers_conv_pool, prepare_conv_pool),
          cuda_row("cuda.conv2d.wgmma", covers_product<Conv2d>, prepare_product<Conv2d>),
          cuda_row("cuda.conv2d_grad_x.wgmma", covers_product<Conv2dGradX>,
                   prepare_product<Conv2dGradX>)};
}

}  // namespace ridgeline::cuda
