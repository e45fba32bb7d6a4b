#include "ridgeline/cuda/conv/kernels.h"
#include "ridgeline/cuda/conv1d/chain.h"
#include "ridgeline/cuda/conv1d/kernels.h"
#include "ridgeline/cuda/conv1d/shapes.h"
#include "ridgeline/cuda/conv1d/spans.h"
#include "ridgeline/cuda/kernel.h"
#include "ridgeline/cuda/plain/bind_mixed_operand.h"

namespace ridgeline::cuda {
namespace {

// Convolutions, each but the last followed by relu, each reading the output of the one before. The
// last is normalised and pooled.
struct Chain {
  std::vector<const Conv2d*> convs;
  std::optional<NormPool> end;
  Values inner;
  size_t ops = 0;
};

Chain chain_at(const RemainingOps& rest) {
  Chain chain;
  for (const Conv2d* conv = rest.get<Conv2d>(0); conv != nullptr;
       conv = rest.get<Conv2d>(chain.ops)) {
    if (!chain.convs.empty() && conv->x.id != chain.inner.back().id) return {};
    // A longer chain is not walked.
    if (chain.convs.size() == size_t(kMostChained)) return {};
    chain.convs.push_back(conv);
    chain.inner.push_back(conv->y);
    ++chain.ops;
    const auto* activation = rest.get<Activation>(chain.ops);
    if (!is_relu(activation, conv->y)) break;
    chain.inner.push_back(activation->y);
    ++chain.ops;
  }
  if (chain.convs.empty()) return {};
  chain.end = norm_pool_at(rest, chain.ops, chain.convs.back()->y);
  if (!chain.end) return {};
  chain.inner.push_back(chain.end->norm->y);
  chain.inner.push_back(chain.end->relu->y);
  chain.ops += 3;
  return chain;
}

std::string refuse_conv(const Conv2d& conv) {
  const Conv2dShape& shape = conv.shape;
  if (shape.in.c != 256 || shape.k != 256 || shape.window.w.kernel != 3) {
    return "takes 3 taps of 256 channels to 256";
  }
  if (std::string reason = refuse_signal_conv(shape); !reason.empty()) return reason;
  return refuse_floats({conv.x, conv.w, unless_mixed(conv.b, conv.x.dtype), conv.y});
}

Cover covers_chain(const RemainingOps& rest) {
  if (rest.get<Conv2d>(0) == nullptr) return no_such_op(Conv2d::kName);
  const Chain chain = chain_at(rest);
  if (chain.ops == 0)
    return Cover::no("no chain of convolutions that ends in layer_norm, relu and pool of 3");
  const Conv2d& first = *chain.convs.front();
  std::string reason = size_of(first.x.dtype) == 2 ? "" : "takes halves";
  for (const Conv2d* conv : chain.convs) {
    if (reason.empty()) reason = refuse_conv(*conv);
  }
  if (reason.empty()) reason = refuse_norm(*chain.end->norm);
  if (reason.empty()) reason = refuse_conv1d_chain(int(first.shape.in.w), int(chain.convs.size()));
  if (reason.empty()) reason = refuse_large({first.n() * signal_pitch(first.shape.in.w)});
  if (!reason.empty()) return Cover::no(reason);
  Cover cover = cover_skipping(rest, chain.inner, chain.ops);
  if (cover.ops == 0) return cover;
  cover.workspace = conv1d_chain_workspace(int(chain.convs.size()));
  cover.reads.push_back(signal_use(first.x, 256, first.shape.in.w));
  return cover;
}

template <typename T>
std::unique_ptr<Step> prepare_typed(const Span& span, const Binding& binding) {
  const auto& first = span.get<Conv2d>(0);
  const auto& norm = span.get<LayerNorm>(span.size() - 3);
  Conv1dChainArgs<T> args;
  args.n = int(first.n());
  args.length = int(first.shape.in.w);
  args.x = binding.read(first.x).as<T>();
  for (size_t i = 0; i + 3 < span.size(); i += 2) {  // each relu lies between two convolutions
    const auto& conv = span.get<Conv2d>(i);
    args.w[size_t(args.layers)] = binding.read(conv.w).as<T>();
    args.bias[size_t(args.layers++)] = read_mixed<T>(binding, conv.b, conv.x.dtype);
  }
  args.gamma = binding.read(norm.gamma).as<T>();
  args.beta = binding.read(norm.beta).as<T>();
  args.epsilon = float(norm.epsilon);
  args.y = binding.write(span.get<MaxPool>(span.size() - 1).y).as<T>();
  return launch_step(binding, describe(span.op(0)),
                     prepare_conv1d_chain<T>(args, binding.workspace(), sms(binding)));
}

std::unique_ptr<Step> prepare_chain(const Span& span, const Binding& binding) {
  return span.get<Conv2d>(0).x.dtype == DType::bf16 ? prepare_typed<__nv_bfloat16>(span, binding)
                                                    : prepare_typed<__half>(span, binding);
}

}  // namespace

KernelTable signal_chain_kernels() {
  return {cuda_kernel("cuda.conv1d_chain_norm_relu_pool.wgmma", covers_chain, prepare_chain,
                      kWgmmaOfHalves)};
}

}  // namespace ridgeline::cuda
