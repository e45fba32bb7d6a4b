// cpu.batch_norm_relu.blocked and its variants with the convolution before it and a 2 x 2 max pool
// after it, on oneDNN's blocked images: two passes over the images instead of five.
#ifdef RIDGELINE_HAVE_ONEDNN

#include "ridgeline/cpu/onednn/blocked_norm.h"

#include <cmath>
#include <optional>

#include "ridgeline/cpu/onednn/kernels.h"

namespace ridgeline::cpu {
namespace {

using simd::BlockedNormShape;

struct ForwardOps {
  const Conv2d* conv = nullptr;
  const BatchNorm* norm = nullptr;
  const Activation* relu = nullptr;
  const MaxPool* pool = nullptr;

  const PoolShape* pool_shape() const { return pool != nullptr ? &pool->shape : nullptr; }
  BlockedNormShape shape() const { return norm_shape(norm->n(), norm->in, pool_shape()); }
};

std::optional<ForwardOps> find_forward(const RemainingOps& rest, NormReach reach) {
  const size_t next = reach.conv ? 1 : 0;
  const ForwardOps ops{reach.conv ? rest.get<Conv2d>(0) : nullptr, rest.get<BatchNorm>(next),
                       rest.get<Activation>(next + 1),
                       reach.pool ? rest.get<MaxPool>(next + 2) : nullptr};
  if (ops.norm == nullptr || ops.relu == nullptr || ops.relu->kind != ActivationKind::relu ||
      ops.relu->x.id != ops.norm->y.id) {
    return std::nullopt;
  }
  if (reach.conv && (ops.conv == nullptr || ops.conv->y.id != ops.norm->x.id)) return std::nullopt;
  if (reach.pool && (ops.pool == nullptr || ops.pool->x.id != ops.relu->y.id)) return std::nullopt;
  return ops;
}

// Besides the channels, the memory of the convolution if there is one.
struct ForwardMemory {
  NormChannels channels;
  std::optional<BlockedSumsPart> conv;
  size_t bytes;

  ForwardMemory(const ForwardOps& ops, int threads, std::byte* base)
      : channels(ops.shape(), threads, base), bytes(channels.bytes) {
    if (ops.conv == nullptr) return;
    simd::Scratch scratch(base != nullptr ? base + channels.bytes : nullptr);
    conv = BlockedSumsPart::forward(*ops.conv);
    conv->allot(scratch, threads);
    bytes += scratch.bytes();
  }
};

Cover covers_forward(const RemainingOps& rest, NormReach reach) {
  const auto ops = find_forward(rest, reach);
  if (!ops) return Cover::no("the next ops are no batch_norm with what should be around it");
  const BatchNorm& norm = *ops->norm;
  const Values values{norm.x,           norm.gamma, norm.beta, norm.running_mean,
                      norm.running_var, norm.mean,  norm.rstd, norm.y};
  std::string why = refuse_norm(values, norm.in, ops->pool_shape());
  if (why.empty() && reach.conv) {
    const Conv2d& conv = *ops->conv;
    why = conv.shape.out().c != norm.in.c
              ? "the norm sees other channels"
              : refuse_blocked_conv(conv.shape, {conv.x, conv.w, conv.b});
  }
  if (!why.empty()) return Cover::no(why);
  Cover cover = Cover::of(2 + (reach.conv ? 1 : 0) + (reach.pool ? 1 : 0));
  if (!rest.dead_after(norm.y, cover.ops)) return Cover::no("the ReLU's input is needed later");
  cover.skips = {norm.y.id};
  if (!(reach.conv ? add_input(cover.reads, ops->conv->x, ops->conv->shape.in) &&
                         add_image(cover.writes, norm.x, ops->conv->shape.out())
                   : add_image(cover.reads, norm.x, norm.in)) ||
      !add_image(cover.writes, ops->relu->y, norm.in) ||
      (reach.pool && !add_image(cover.writes, ops->pool->y, ops->pool->shape.out()))) {
    return Cover::no(kNoLayoutName);
  }
  const int threads = cpu_runtime(rest.runtime).pool().size();
  cover.workspace = ForwardMemory(*ops, threads, nullptr).bytes;
  return cover;
}

class ForwardStep final : public Step {
 public:
  ForwardStep(const ForwardOps& ops, const Binding& binding)
      : pool_(cpu_runtime(binding.runtime()).pool()),
        epsilon_(ops.norm->epsilon),
        momentum_(ops.norm->momentum),
        memory_(ops, pool_.size(), binding.workspace()) {
    const BatchNorm& op = *ops.norm;
    args_.shape = ops.shape();
    args_.x = (ops.conv != nullptr ? binding.write(op.x) : binding.read(op.x)).as<float>();
    if (ops.conv != nullptr) {
      memory_.conv->bind(binding.read(ops.conv->x).as<float>(),
                         binding.read(ops.conv->w).as<float>(),
                         binding.read(ops.conv->b).as<float>(), ActivationKind::none,
                         binding.write(op.x).as<float>());
    }
    args_.a = binding.write(ops.relu->y).as<float>();
    args_.pooled = ops.pool != nullptr ? binding.write(ops.pool->y).as<float>() : nullptr;
    args_.mean = channels_.used[0];
    args_.scale = channels_.used[1];
    args_.beta = channels_.used[2];
    gamma_ = binding.read(op.gamma).as<float>();
    beta_ = binding.read(op.beta).as<float>();
    mean_ = binding.write(op.mean).as<float>();
    rstd_ = binding.write(op.rstd).as<float>();
    running_mean_ = binding.write(op.running_mean).as<float>();
    running_var_ = binding.write(op.running_var).as<float>();
    batches_ = binding.write(op.batches).as<int64_t>();
  }

  void run() override {
    pool_.run([this](int thread) {
      const auto& functions = simd::blocked_norm_functions();
      const auto t = size_t(thread);
      const Range samples = split(args_.shape.n, thread, pool_.size());
      const simd::ChannelStatistics own{channels_.sums[0][t], channels_.sums[1][t]};
      if (memory_.conv) {
        memory_.conv->begin(thread, pool_.size());
        pool_.barrier();
        functions.statistics(args_.shape, args_.x, {samples.begin, samples.begin}, 0, own);
        for (int64_t i = samples.begin; i < samples.end; ++i) {
          memory_.conv->image(thread, i);
          functions.statistics(args_.shape, args_.x, {i, i + 1}, i - samples.begin, own);
        }
      } else {
        functions.statistics(args_.shape, args_.x, samples, 0, own);
      }
      pool_.barrier();
      if (thread == 0) finish_channels();
      pool_.barrier();
      functions.forward(args_, samples);
    });
  }

 private:
  void finish_channels() {
    const BlockedNormShape& s = args_.shape;
    for (int64_t c = 0; c < s.padded(); ++c) {
      for (float* each : channels_.used) each[c] = 0;
      if (c < s.channels) finish_channel(c);
    }
    ++*batches_;
  }

  void finish_channel(int64_t c) {
    const BlockedNormShape& s = args_.shape;
    double mean = 0, squares = 0, before = 0;
    for (int t = 0; t < pool_.size(); ++t) {
      const Range samples = split(s.n, t, pool_.size());
      const double count = double((samples.end - samples.begin) * s.pixels()), all = before + count;
      if (count == 0) continue;
      const double off = channels_.sums[0][size_t(t)][c] - mean;
      mean += off * count / all;
      squares += channels_.sums[1][size_t(t)][c] + off * off * before * count / all;
      before = all;
    }
    const double variance = squares / before, rstd = 1 / std::sqrt(variance + epsilon_);
    mean_[c] = float(mean);
    rstd_[c] = float(rstd);
    channels_.used[0][c] = float(mean);
    channels_.used[1][c] = float(rstd * double(or_else(gamma_, c, 1)));
    channels_.used[2][c] = or_else(beta_, c, 0);
    const auto follow = [&](float& running, double now) {
      running = float((1 - momentum_) * double(running) + momentum_ * now);
    };
    follow(running_mean_[c], mean);
    follow(running_var_[c], variance * before / (before - 1));
  }

  ThreadPool& pool_;
  double epsilon_, momentum_;
  ForwardMemory memory_;
  NormChannels& channels_ = memory_.channels;
  simd::BlockedNormArgs args_{};
  const float *gamma_, *beta_;  // null without
  float *mean_, *rstd_, *running_mean_, *running_var_;
  int64_t* batches_;
};

std::unique_ptr<Step> prepare_forward(const RemainingOps& rest, NormReach reach,
                                      const Binding& binding) {
  return std::make_unique<ForwardStep>(*find_forward(rest, reach), binding);
}

}  // namespace

KernelTable blocked_norm_kernels() {
  KernelTable table = blocked_norm_grad_kernels();
  const auto add = [&](const char* name, NormReach reach) {
    table.push_back(norm_kernel(name, reach, covers_forward, prepare_forward));
  };
  add("cpu.conv2d_batch_norm_relu_pool.blocked", {true, true});
  add("cpu.conv2d_batch_norm_relu.blocked", {true, false});
  add("cpu.batch_norm_relu_pool.blocked", {false, true});
  add("cpu.batch_norm_relu.blocked", {false, false});
  return table;
}

}  // namespace ridgeline::cpu

#endif
