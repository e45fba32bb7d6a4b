// cpu.batch_norm_relu.blocked, its variant with a 2 x 2 max pool after it, and their gradients, on
// oneDNN's blocked images: two passes over the images instead of five, and two instead of nine.
#ifdef RIDGELINE_HAVE_ONEDNN

#include "ridgeline/cpu/simd/blocked_norm.h"

#include <cmath>
#include <optional>

#include "ridgeline/cpu/onednn/kernels.h"
#include "ridgeline/cpu/onednn/layout.h"
#include "ridgeline/cpu/simd/kernel.h"

namespace ridgeline::cpu {
namespace {

using simd::BlockedNormShape;

int64_t block_size() { return blocked_tag() == Tag::nChw16c ? 16 : 8; }

// Describes images `in` as the normalisation sees them, which ignores their width, or as the pool
// does.
BlockedNormShape shape_of(int64_t n, const Image& in, const PoolShape* pool) {
  const Image& image = pool != nullptr ? pool->in : in;
  return {n, image.c, block_size(), image.h, image.w, pool != nullptr};
}

bool add_image(std::vector<FormatUse>& uses, const Value& value, const Image& image) {
  return add_use(uses, value, image_memory(value.shape[0], image, blocked_tag()), image);
}

// Returns why the kernels cannot take these operands, or "". `pool` is null without one.
std::string refuse_norm(const Values& values, const Image& in, const PoolShape* pool) {
  const Slide two{2, 2, 0, 1};
  if (pool != nullptr && pool->in.c != in.c) return "the pool sees other channels";
  if (pool != nullptr && pool->window != Window{two, two}) {
    return "takes pools of 2 x 2 with stride 2";
  }
  if (block_size() % simd::blocked_norm_functions().lanes() != 0) {
    return "a block of channels is no whole number of vectors";
  }
  return refuse(values);
}

// A step's values for each channel, with zeros for the padding of the last block: numbers that the
// passes over the images use, and two sums of each thread's samples.
struct Channels {
  float* used[5];
  std::vector<double*> sums[2];
  size_t bytes;

  Channels(const BlockedNormShape& shape, int threads, std::byte* base) {
    const auto padded = size_t(shape.padded());
    simd::Scratch scratch(base);
    for (float*& each : used) each = scratch.take<float>(padded);
    for (auto& each : sums) {
      for (int i = 0; i < threads; ++i) each.push_back(scratch.take<double>(padded));
    }
    bytes = scratch.bytes();
  }
};

float or_else(const float* values, int64_t c, float otherwise) {
  return values != nullptr ? values[c] : otherwise;
}

// Forward

struct ForwardOps {
  const BatchNorm* norm = nullptr;
  const Activation* relu = nullptr;
  const MaxPool* pool = nullptr;

  const PoolShape* pool_shape() const { return pool != nullptr ? &pool->shape : nullptr; }
  BlockedNormShape shape() const { return shape_of(norm->n(), norm->in, pool_shape()); }
};

std::optional<ForwardOps> find_forward(const RemainingOps& rest, bool pooled) {
  const ForwardOps ops{rest.get<BatchNorm>(0), rest.get<Activation>(1),
                       pooled ? rest.get<MaxPool>(2) : nullptr};
  if (ops.norm == nullptr || ops.relu == nullptr || ops.relu->kind != ActivationKind::relu ||
      ops.relu->x.id != ops.norm->y.id) {
    return std::nullopt;
  }
  if (pooled && (ops.pool == nullptr || ops.pool->x.id != ops.relu->y.id)) return std::nullopt;
  return ops;
}

Cover covers_forward(const RemainingOps& rest, bool pooled) {
  const auto ops = find_forward(rest, pooled);
  if (!ops) return Cover::no("the next ops are no batch_norm with what should follow");
  const BatchNorm& norm = *ops->norm;
  const Values values{norm.x,           norm.gamma, norm.beta, norm.running_mean,
                      norm.running_var, norm.mean,  norm.rstd, norm.y};
  const std::string why = refuse_norm(values, norm.in, ops->pool_shape());
  if (!why.empty()) return Cover::no(why);
  Cover cover = Cover::of(pooled ? 3 : 2);
  if (!rest.dead_after(norm.y, cover.ops)) return Cover::no("the ReLU's input is needed later");
  cover.skips = {norm.y.id};
  if (!add_image(cover.reads, norm.x, norm.in) || !add_image(cover.writes, ops->relu->y, norm.in) ||
      (pooled && !add_image(cover.writes, ops->pool->y, ops->pool->shape.out()))) {
    return Cover::no("a layout that has no name here");
  }
  const int threads = cpu_runtime(rest.runtime).pool().size();
  cover.workspace = Channels(ops->shape(), threads, nullptr).bytes;
  return cover;
}

class ForwardStep final : public Step {
 public:
  ForwardStep(const ForwardOps& ops, const Binding& binding)
      : pool_(cpu_runtime(binding.runtime()).pool()),
        epsilon_(ops.norm->epsilon),
        momentum_(ops.norm->momentum),
        channels_(ops.shape(), pool_.size(), binding.workspace()) {
    const BatchNorm& op = *ops.norm;
    args_.shape = ops.shape();
    args_.x = binding.read(op.x).as<float>();
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
      functions.statistics(args_.shape, args_.x, samples,
                           {channels_.sums[0][t], channels_.sums[1][t]});
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
  Channels channels_;
  simd::BlockedNormArgs args_{};
  const float *gamma_, *beta_;  // null without
  float *mean_, *rstd_, *running_mean_, *running_var_;
  int64_t* batches_;
};

// Backward

struct BackwardOps {
  const MaxPoolGrad* pool = nullptr;
  const ActivationGrad* relu = nullptr;
  const BatchNormGrad* norm = nullptr;

  const PoolShape* pool_shape() const { return pool != nullptr ? &pool->shape : nullptr; }
  BlockedNormShape shape() const { return shape_of(norm->n(), norm->in, pool_shape()); }
  const Value& dy() const { return pool != nullptr ? pool->dy : relu->dy; }
};

std::optional<BackwardOps> find_backward(const RemainingOps& rest, bool pooled) {
  const size_t next = pooled ? 1 : 0;
  const BackwardOps ops{pooled ? rest.get<MaxPoolGrad>(0) : nullptr, rest.get<ActivationGrad>(next),
                        rest.get<BatchNormGrad>(next + 1)};
  if (ops.relu == nullptr || ops.relu->kind != ActivationKind::relu || ops.norm == nullptr ||
      ops.norm->dy.id != ops.relu->dx.id || !ops.norm->dx) {
    return std::nullopt;
  }
  if (pooled && (ops.pool == nullptr || ops.relu->dy.id != ops.pool->dx.id ||
                 ops.pool->x.id != ops.relu->saved.id)) {
    return std::nullopt;
  }
  return ops;
}

Cover covers_backward(const RemainingOps& rest, bool pooled) {
  const auto ops = find_backward(rest, pooled);
  if (!ops) return Cover::no("the next ops are no gradients of a ReLU and its batch_norm");
  const BatchNormGrad& norm = *ops->norm;
  const Values values{norm.x,  norm.gamma,  norm.mean,  norm.rstd,
                      norm.dx, norm.dgamma, norm.dbeta, ops->dy()};
  const std::string why = refuse_norm(values, norm.in, ops->pool_shape());
  if (!why.empty()) return Cover::no(why);
  Cover cover = Cover::of(pooled ? 3 : 2);
  for (const Value& inside : {ops->relu->dx, pooled ? ops->pool->dx : Value{}}) {
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
      !add_image(cover.writes, norm.dx, norm.in)) {
    return Cover::no("a layout that has no name here");
  }
  const int threads = cpu_runtime(rest.runtime).pool().size();
  cover.workspace = Channels(ops->shape(), threads, nullptr).bytes;
  return cover;
}

class BackwardStep final : public Step {
 public:
  BackwardStep(const BackwardOps& ops, const Binding& binding)
      : pool_(cpu_runtime(binding.runtime()).pool()),
        channels_(ops.shape(), pool_.size(), binding.workspace()) {
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
    gamma_ = binding.read(op.gamma).as<float>();
    mean_ = binding.read(op.mean).as<float>();
    rstd_ = binding.read(op.rstd).as<float>();
    dgamma_ = binding.write(op.dgamma).as<float>();
    dbeta_ = binding.write(op.dbeta).as<float>();
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
      functions.sums(args_, samples, channels_.sums[0][t], channels_.sums[1][t]);
      pool_.barrier();
      if (thread == 0) finish_channels();
      pool_.barrier();
      functions.grad(args_, samples);
    });
  }

 private:
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
  Channels channels_;
  simd::BlockedNormGradArgs args_{};
  const float *gamma_, *mean_, *rstd_;
  float *dgamma_, *dbeta_;  // null if not wanted
};

template <typename Covers, typename Prepare>
Kernel kernel_of(const char* name, bool pooled, Covers covers, Prepare prepare) {
  Kernel kernel;
  kernel.name = name;
  kernel.traits.precisions = simd::kFloatOnly;
  kernel.covers = [=](const RemainingOps& rest) { return covers(rest, pooled); };
  kernel.prepare = [=](const Span& span, const Binding& binding) {
    return prepare(RemainingOps{span.program, span.begin, binding.runtime()}, pooled, binding);
  };
  return kernel;
}

std::unique_ptr<Step> prepare_forward(const RemainingOps& rest, bool pooled,
                                      const Binding& binding) {
  return std::make_unique<ForwardStep>(*find_forward(rest, pooled), binding);
}

std::unique_ptr<Step> prepare_backward(const RemainingOps& rest, bool pooled,
                                       const Binding& binding) {
  return std::make_unique<BackwardStep>(*find_backward(rest, pooled), binding);
}

}  // namespace

KernelTable blocked_norm_kernels() {
  return {
      kernel_of("cpu.batch_norm_relu_pool.blocked", true, covers_forward, prepare_forward),
      kernel_of("cpu.pool_relu_batch_norm_grad.blocked", true, covers_backward, prepare_backward),
      kernel_of("cpu.batch_norm_relu.blocked", false, covers_forward, prepare_forward),
      kernel_of("cpu.relu_batch_norm_grad.blocked", false, covers_backward, prepare_backward)};
}

}  // namespace ridgeline::cpu

#endif
