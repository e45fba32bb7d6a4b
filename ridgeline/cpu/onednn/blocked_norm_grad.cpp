// cpu.relu_batch_norm_grad.blocked and its variants with a 2 x 2 max pool before it and the
// gradients of a convolution after it, on oneDNN's blocked images: two passes over the images
// instead of nine.
#ifdef RIDGELINE_HAVE_ONEDNN

#include <optional>

#include "ridgeline/cpu/onednn/blocked_norm.h"
#include "ridgeline/cpu/onednn/kernels.h"

namespace ridgeline::cpu {
namespace {

using simd::BlockedNormShape;

struct BackwardOps {
  const MaxPoolGrad* pool = nullptr;
  const ActivationGrad* relu = nullptr;
  const BatchNormGrad* norm = nullptr;
  const Conv2dGradX* conv_x = nullptr;  // none for the first layer
  const Conv2dGradW* conv_w = nullptr;

  const PoolShape* pool_shape() const { return pool != nullptr ? &pool->shape : nullptr; }
  BlockedNormShape shape() const { return norm_shape(norm->n(), norm->in, pool_shape()); }
  const Value& dy() const { return pool != nullptr ? pool->dy : relu->dy; }
};

std::optional<BackwardOps> find_backward(const RemainingOps& rest, NormReach reach) {
  const size_t next = reach.pool ? 1 : 0;
  BackwardOps ops{reach.pool ? rest.get<MaxPoolGrad>(0) : nullptr, rest.get<ActivationGrad>(next),
                  rest.get<BatchNormGrad>(next + 1)};
  if (ops.relu == nullptr || ops.relu->kind != ActivationKind::relu || ops.norm == nullptr ||
      ops.norm->dy.id != ops.relu->dx.id || !ops.norm->dx) {
    return std::nullopt;
  }
  if (reach.pool && (ops.pool == nullptr || ops.relu->dy.id != ops.pool->dx.id ||
                     ops.pool->x.id != ops.relu->saved.id)) {
    return std::nullopt;
  }
  if (!reach.conv) return ops;
  ops.conv_x = rest.get<Conv2dGradX>(next + 2);
  ops.conv_w = rest.get<Conv2dGradW>(next + (ops.conv_x != nullptr ? 3 : 2));
  if (ops.conv_w == nullptr || ops.conv_w->dy.id != ops.norm->dx.id ||
      (ops.conv_x != nullptr && ops.conv_x->dy.id != ops.norm->dx.id)) {
    return std::nullopt;
  }
  return ops;
}

// Besides the channels, the memory of the convolution's gradients if there are any: each thread has
// the image that is their dy.
struct BackwardMemory {
  NormChannels channels;
  std::optional<BlockedSumsPart> conv_x;
  std::optional<BlockedWeightGradPart> conv_w;
  std::vector<float*> dy;
  uint8_t* chosen;
  size_t bytes;

  BackwardMemory(const BackwardOps& ops, int threads, std::byte* base)
      : channels(ops.shape(), threads, base) {
    simd::Scratch scratch(base != nullptr ? base + channels.bytes : nullptr);
    chosen = scratch.take<uint8_t>(size_t(ops.shape().pooled_numbers()));
    if (ops.conv_w != nullptr) allot_conv(ops, threads, scratch);
    bytes = channels.bytes + scratch.bytes();
  }

  void allot_conv(const BackwardOps& ops, int threads, simd::Scratch& scratch) {
    conv_w.emplace(*ops.conv_w);
    conv_w->allot(scratch, threads);
    if (ops.conv_x != nullptr) {
      conv_x = BlockedSumsPart::input_grad(*ops.conv_x);
      conv_x->allot(scratch, threads);
    }
    for (int t = 0; t < threads; ++t) {
      dy.push_back(scratch.take<float>(size_t(blocked_floats(ops.conv_w->shape.out()))));
    }
  }
};

std::string refuse_grads(const BackwardOps& ops) {
  const Conv2dGradW& op = *ops.conv_w;
  if (op.shape.out().c != ops.norm->in.c) return "the norm sees other channels";
  std::string why = refuse_blocked_conv(op.shape, {op.x, op.dw, op.db});
  return why.empty() ? BlockedWeightGradPart(op).refuses() : why;
}

Cover covers_backward(const RemainingOps& rest, NormReach reach) {
  const auto ops = find_backward(rest, reach);
  const bool pooled = reach.pool;
  if (!ops) return Cover::no("the next ops are no gradients of a ReLU and its batch_norm");
  const BatchNormGrad& norm = *ops->norm;
  const Values values{norm.x,  norm.gamma,  norm.mean,  norm.rstd,
                      norm.dx, norm.dgamma, norm.dbeta, ops->dy()};
  std::string why = refuse_norm(values, norm.in, ops->pool_shape());
  if (why.empty() && reach.conv) why = refuse_grads(*ops);
  if (!why.empty()) return Cover::no(why);
  Cover cover =
      Cover::of(2 + (pooled ? 1 : 0) + (reach.conv ? 1 : 0) + (ops->conv_x != nullptr ? 1 : 0));
  for (const Value& inside :
       {ops->relu->dx, pooled ? ops->pool->dx : Value{}, reach.conv ? norm.dx : Value{}}) {
    if (!inside) continue;
    if (!rest.dead_after(inside, cover.ops)) return Cover::no("a gradient is needed later");
    cover.skips.push_back(inside.id);
  }
  const Image out = pooled ? ops->pool->shape.out() : norm.in;
  // The pool's output is not read, but it is taken in its current format, because a conversion
  // would be useless.
  if (!add_image(cover.reads, norm.x, norm.in) ||
      !add_image(cover.reads, ops->relu->saved, norm.in) ||
      !add_image(cover.reads, ops->dy(), out) ||
      (pooled && !add_image(cover.reads, ops->pool->y, out)) ||
      !(reach.conv ? add_input(cover.reads, ops->conv_w->x, ops->conv_w->shape.in)
                   : add_image(cover.writes, norm.dx, norm.in)) ||
      (ops->conv_x != nullptr &&
       !add_image(cover.writes, ops->conv_x->dx, ops->conv_x->shape.in))) {
    return Cover::no(kNoLayoutName);
  }
  const int threads = cpu_runtime(rest.runtime).pool().size();
  cover.workspace = BackwardMemory(*ops, threads, nullptr).bytes;
  return cover;
}

class BackwardStep final : public Step {
 public:
  BackwardStep(const BackwardOps& ops, const Binding& binding)
      : pool_(cpu_runtime(binding.runtime()).pool()),
        memory_(ops, pool_.size(), binding.workspace()) {
    const BatchNormGrad& op = *ops.norm;
    args_.shape = ops.shape();
    args_.x = binding.read(op.x).as<float>();
    args_.a = binding.read(ops.relu->saved).as<float>();
    args_.dy = binding.read(ops.dy()).as<float>();
    args_.dx = binding.write(op.dx).as<float>();
    args_.mean = channels_.used[0];
    args_.scale = channels_.used[1];
    args_.offset = channels_.used[2];
    args_.slope = channels_.used[3];
    args_.rstd = channels_.used[4];
    args_.chosen = memory_.chosen;
    gamma_ = binding.read(op.gamma).as<float>();
    mean_ = binding.read(op.mean).as<float>();
    rstd_ = binding.read(op.rstd).as<float>();
    dgamma_ = binding.write(op.dgamma).as<float>();
    dbeta_ = binding.write(op.dbeta).as<float>();
    if (ops.conv_w != nullptr) memory_.conv_w->bind(*ops.conv_w, binding);
    if (ops.conv_x == nullptr) return;
    memory_.conv_x->bind(nullptr, binding.read(ops.conv_x->w).as<float>(), nullptr,
                         ActivationKind::none, binding.write(ops.conv_x->dx).as<float>());
  }

  void run() override {
    const BlockedNormShape& s = args_.shape;
    for (int64_t c = 0; c < s.padded(); ++c) {
      for (float* each : channels_.used) each[c] = 0;
      if (c < s.channels) channels_.used[0][c] = mean_[c], channels_.used[4][c] = rstd_[c];
    }
    pool_.run([&](int thread) {
      const auto& functions = simd::blocked_norm_functions();
      const auto t = size_t(thread);
      const Range samples = split(s.n, thread, pool_.size());
      if (memory_.conv_x) memory_.conv_x->begin(thread, pool_.size());
      functions.sums(args_, samples, channels_.sums[0][t], channels_.sums[1][t]);
      pool_.barrier();
      if (thread == 0) finish_channels();
      pool_.barrier();
      memory_.conv_w ? run_conv(thread, samples) : functions.grad(args_, samples);
    });
  }

 private:
  // A thread's images: their gradients stay in its cache for the convolution's.
  void run_conv(int thread, Range samples) {
    float* dy = memory_.dy[size_t(thread)];
    memory_.conv_w->begin(thread);
    simd::BlockedNormGradArgs args = args_;
    args.dx = dy;
    for (int64_t i = samples.begin; i < samples.end; ++i) {
      args.dx_first = i;
      simd::blocked_norm_functions().grad(args, {i, i + 1});
      if (memory_.conv_x) memory_.conv_x->image(thread, i, dy);
      memory_.conv_w->image(thread, i, dy);
    }
    pool_.barrier();
    memory_.conv_w->finish(thread, pool_.size());
  }

  void finish_channels() {
    const BlockedNormShape& s = args_.shape;
    for (int64_t c = 0; c < s.channels; ++c) {
      double dbeta = 0, product = 0;
      for (int t = 0; t < pool_.size(); ++t) {
        dbeta += channels_.sums[0][size_t(t)][c];
        product += channels_.sums[1][size_t(t)][c];
      }
      const double rstd = double(rstd_[c]), scale = rstd * double(or_else(gamma_, c, 1));
      channels_.used[1][c] = float(scale);
      channels_.used[2][c] = float(dbeta / s.count());
      channels_.used[3][c] = float(product / s.count());
      if (dbeta_ != nullptr) dbeta_[c] = float(dbeta);
      if (dgamma_ != nullptr) dgamma_[c] = float(product);
    }
  }

  ThreadPool& pool_;
  BackwardMemory memory_;
  NormChannels& channels_ = memory_.channels;
  simd::BlockedNormGradArgs args_{};
  const float *gamma_, *mean_, *rstd_;
  float *dgamma_, *dbeta_;  // null if not wanted
};

std::unique_ptr<Step> prepare_backward(const RemainingOps& rest, NormReach reach,
                                       const Binding& binding) {
  return std::make_unique<BackwardStep>(*find_backward(rest, reach), binding);
}

}  // namespace

KernelTable blocked_norm_grad_kernels() {
  KernelTable table;
  const auto add = [&](const char* name, NormReach reach) {
    table.push_back(norm_kernel(name, reach, covers_backward, prepare_backward));
  };
  add("cpu.pool_relu_batch_norm_conv2d_grads.blocked", {true, true});
  add("cpu.relu_batch_norm_conv2d_grads.blocked", {true, false});
  add("cpu.pool_relu_batch_norm_grad.blocked", {false, true});
  add("cpu.relu_batch_norm_grad.blocked", {false, false});
  return table;
}

}  // namespace ridgeline::cpu

#endif
