#include <functional>
#include <optional>

#include "ridgeline/cpu/simd/mlp_memory.h"
#include "ridgeline/cpu/simd/shared_step.h"
#include "ridgeline/cpu/simd/split_kernels.h"

namespace ridgeline::cpu::simd {
namespace {

// The scale by which MlpStep may multiply its products instead of the samples.
template <typename T>
T input_scale(const MlpStepOps& ops) {
  const Gather& x = *ops.inputs;
  return x.set.dtype == DType::uint8 && x.shift == 0 ? T(x.scale) : T(0);
}

double max_norm(const MlpStepOps& ops) { return ops.norm != nullptr ? ops.norm->max_norm : 0; }

// Who computes a step: all threads of the pool or the caller alone, and with an engine the products
// of wide layers by it.
struct MlpTeam {
  const SplitEngine* engine = nullptr;
  bool alone = false;
};

template <typename T>
class MlpTrainStep final : public Step {
 public:
  MlpTrainStep(const MlpStepOps& ops, const Binding& binding, const MlpTeam& team)
      : memory_(ops, binding),
        pool_(team.alone ? alone_ : cpu_runtime(binding.runtime()).pool()),
        step_(mlp_layers<T>(ops, &binding), ops.inputs->y.shape[0], pool_.size(),
              mlp_loss_of(ops, &binding), team.engine, input_scale<T>(ops), max_norm(ops)) {
    step_.bind(binding.workspace());
  }

  void run() override {
    memory_.run([this](const MlpBatch<T>& batch, int64_t n, double scale,
                       const MlpIteration<T>& iteration) {
      return step_.run(pool_, batch, n, scale, iteration);
    });
  }

 private:
  MlpStepMemory<T> memory_;
  ThreadPool alone_{1};
  ThreadPool& pool_;
  MlpStep<T> step_;
};

constexpr MlpStepExtras kExtras{
    .adam = true, .dropout = true, .floats = true, .losses = true, .norm = true, .norms = true};

// A step of more operations is always faster on several threads: these take 0.3 ms of one.
constexpr double kMostAlone = 32e6;

Cover covers_mlp(const RemainingOps& rest, const MlpTeam& team = {}) {
  const SplitEngine* const engine = team.engine;
  const MlpStepOps ops = match_mlp_step(rest, kExtras);
  if (!ops.refusal.empty()) return Cover::no(ops.refusal);
  if (ops.copies) return Cover::no("takes no copies of weights");
  const DType dtype = ops.inputs->y.dtype;
  if (!takes(dtype)) return Cover::no("takes fp32 and fp64 only");
  if (engine != nullptr && dtype != DType::fp32) return Cover::no(kSplitsOnly);
  if (ops.loss_scale) return Cover::no("the loss is scaled");
  if (ops.norm != nullptr && (engine != nullptr || ops.norm->max_norm <= 0)) {
    return Cover::no("clips no gradients");
  }
  Cover cover = Cover::of(ops.ops);
  cover.skips = ops.inside;
  for (const MlpStepOps::Layer& layer : ops.layers) {
    if (engine != nullptr && layer.norm) return Cover::no("normalises no layers");
    // Statistics of the batch are kept in the type of the products.
    if (layer.norm.batch != nullptr && layer.norm.batch->running_mean.dtype != dtype) {
      return Cover::no("wants running statistics in the type of the weights");
    }
  }
  double flops = 0;
  for (const MlpStepOps::Layer& layer : ops.layers) flops += 3 * layer.linear->flops();
  if (team.alone && flops > kMostAlone) return Cover::no("too much work for one thread");
  const int threads = team.alone ? 1 : cpu_runtime(rest.runtime).pool().size();
  return with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const MlpStep<T> step(mlp_layers<T>(ops, nullptr), ops.inputs->y.shape[0], threads,
                          mlp_loss_of(ops, nullptr), engine, input_scale<T>(ops), max_norm(ops));
    if (engine != nullptr && !step.splits()) return Cover::no("no layer is 32 wide a thread");
    cover.workspace = step.workspace_bytes();
    return cover;
  });
}

std::unique_ptr<Step> prepare_mlp(const Span& span, const Binding& binding,
                                  const MlpTeam& team = {}) {
  const MlpStepOps ops = match_mlp_step({span.program, span.begin, binding.runtime()}, kExtras);
  return with_type(ops.inputs->y.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    return std::make_unique<MlpTrainStep<decltype(zero)>>(ops, binding, team);
  });
}

// The fewest samples per thread; with fewer there is no work to steal.
constexpr int64_t kLeastRows = 32;

// Each thread has a share of the batch and steals from the others when it is done, so that on cores
// of different speed none waits for the slowest.
template <typename T>
class BalancedTrainStep final : public Step {
 public:
  BalancedTrainStep(const MlpStepOps& ops, const Binding* binding, int threads, std::byte* base) {
    Scratch memory(base);
    const std::vector<MlpLayer<T>> layers = mlp_layers<T>(ops, binding);
    const SharedMlpStep<T> one(layers, 1);
    const int64_t rows = (ops.inputs->y.shape[0] + threads - 1) / threads + kGroup<T>;
    std::vector<std::byte*> segments;
    segments.reserve(size_t(threads));
    for (int t = 0; t < threads; ++t) {
      segments.push_back(memory.take<std::byte>(align_up(one.segment_bytes(rows), 4096)));
    }
    for (int t = 0; t < threads; ++t) {
      SharedMlpStep<T>& member = members_.emplace_back(layers, 1);
      member.bind(segments, t, memory.take<std::byte>(one.workspace_bytes()));
      member.be_threads();
    }
    scores_.resize(size_t(threads));
    bytes_ = memory.bytes();
  }
  size_t bytes() const { return bytes_; }
  void bind(const MlpStepOps& ops, const Binding& binding) {
    memory_.emplace(ops, binding);
    pool_ = &cpu_runtime(binding.runtime()).pool();
  }

  void run() override {
    memory_->run([this](const MlpBatch<T>& batch, int64_t n, double scale,
                        const MlpIteration<T>& iteration) {
      members_[0].forget();
      pool_->run([&](int thread) {
        const Range rows = split(n, thread, pool_->size(), kGroup<T>);
        MlpBatch<T> mine = batch;
        mine.order += rows.begin;
        scores_[size_t(thread)] = members_[size_t(thread)].contribute(
            alone_, mine, rows.end - rows.begin, scale, [this](const std::function<bool()>& done) {
              while (!done()) pool_->yield();
            });
        members_[size_t(thread)].update_part(iteration.sgd);
      });
      MlpScore score{};
      for (const MlpScore& part : scores_) {
        score.loss += part.loss;
        score.correct += part.correct;
      }
      return score;
    });
  }

 private:
  std::optional<MlpStepMemory<T>> memory_;
  ThreadPool* pool_ = nullptr;
  ThreadPool alone_{1};  // for a member of a population: no threads beside the caller
  std::vector<SharedMlpStep<T>> members_;
  std::vector<MlpScore> scores_;
  size_t bytes_ = 0;
};

Cover covers_balanced(const RemainingOps& rest) {
  const MlpStepOps ops = match_mlp_step(rest);
  if (!ops.refusal.empty()) return Cover::no(ops.refusal);
  Cover cover = covers_mlp(rest);
  if (cover.ops == 0) return cover;
  const int threads = cpu_runtime(rest.runtime).pool().size();
  if (ops.inputs->y.shape[0] < kLeastRows * threads) return Cover::no("too few samples a thread");
  if (ops.layers.size() > SharedMlpStep<float>::kMostLanes) return Cover::no("too many layers");
  cover.workspace = with_type(ops.inputs->y.dtype, [&](auto zero) {
    return BalancedTrainStep<decltype(zero)>(ops, nullptr, threads, nullptr).bytes();
  });
  return cover;
}

std::unique_ptr<Step> prepare_balanced(const Span& span, const Binding& binding) {
  const MlpStepOps ops = match_mlp_step({span.program, span.begin, binding.runtime()});
  return with_type(ops.inputs->y.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    const int threads = cpu_runtime(binding.runtime()).pool().size();
    auto step = std::make_unique<BalancedTrainStep<decltype(zero)>>(ops, &binding, threads,
                                                                    binding.workspace());
    step->bind(ops, binding);
    return step;
  });
}

}  // namespace

KernelTable mlp_split_kernels(const SplitEngine& engine) {
  Kernel kernel;
  kernel.name = fmt::format("cpu.mlp_train.{}", engine.name);
  kernel.covers = [&engine](const RemainingOps& rest) { return covers_mlp(rest, {&engine}); };
  kernel.prepare = [&engine](const Span& span, const Binding& binding) {
    return prepare_mlp(span, binding, {&engine});
  };
  return computing_in(kFloatOnly, {kernel});
}

KernelTable mlp_kernels() {
  Kernel kernel;
  kernel.name = "cpu.mlp_train.simd";
  kernel.covers = [](const RemainingOps& rest) { return covers_mlp(rest); };
  kernel.prepare = [](const Span& span, const Binding& binding) {
    return prepare_mlp(span, binding);
  };
  // Small steps: what threads exchange may cost more than they gain.
  Kernel alone;
  alone.name = "cpu.mlp_train.one_thread";
  alone.covers = [](const RemainingOps& rest) { return covers_mlp(rest, {.alone = true}); };
  alone.prepare = [](const Span& span, const Binding& binding) {
    return prepare_mlp(span, binding, {.alone = true});
  };
  Kernel balanced;
  balanced.name = "cpu.mlp_train.balanced";
  balanced.covers = covers_balanced;
  balanced.prepare = prepare_balanced;
  return computing_in(kFloatAndDouble,
                      {kernel, alone, balanced, mlp_shared_kernel(), mlp_gradients_kernel()});
}

}  // namespace ridgeline::cpu::simd
