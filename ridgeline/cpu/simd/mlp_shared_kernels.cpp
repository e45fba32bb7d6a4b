#include <functional>
#include <map>
#include <thread>

#include "ridgeline/core/communicator.h"
#include "ridgeline/core/shared_segment.h"
#include "ridgeline/cpu/simd/mlp_memory.h"
#include "ridgeline/cpu/simd/shared_step.h"

// A perceptron's whole training step over the ranks of one host, which divide its work through
// shared memory. A single process is one rank.
namespace ridgeline::cpu::simd {
namespace {

// The step as a single process would run it: each layer's gradients used at once, without sums.
struct AloneStep {
  Program program;
  std::string refusal;
};

AloneStep alone_step(const RemainingOps& rest) {
  AloneStep alone;
  const auto refuse = [&](const char* why) {
    alone.refusal = why;
    return alone;
  };
  if (rest.begin != 0 || rest.get<Gather>(0) == nullptr)
    return refuse("the next op begins no step");
  std::map<ValueId, Value> grad_of;  // by its sum
  for (size_t i = 0; i < rest.size(); ++i) {
    const auto* start = rest.get<AllReduceStart>(i);
    if (start == nullptr) continue;
    for (size_t k = 0; k < start->grads.size(); ++k) {
      grad_of.emplace(start->sums[k].id, start->grads[k]);
      if (start->wire == DType::bf16 && start->grads[k].dtype == DType::fp32) {
        return refuse("sends no bf16");
      }
    }
  }
  if (grad_of.empty()) return refuse("no gradients are added up over ranks");
  std::map<ValueId, SgdUpdate> update_of;  // by the gradient
  for (size_t i = 0; i < rest.size(); ++i) {
    const auto* sgd = rest.get<SgdUpdate>(i);
    if (sgd == nullptr || grad_of.count(sgd->dw.id) == 0) continue;
    SgdUpdate update = *sgd;
    update.dw = grad_of.at(sgd->dw.id);
    update_of.emplace(update.dw.id, update);
  }
  alone.program.values = rest.program.values;
  alone.program.precision = rest.program.precision;
  alone.program.repeats = rest.program.repeats;
  const auto use = [&](const Value& grad) {
    const auto update = update_of.find(grad.id);
    if (grad && update != update_of.end()) alone.program.add(update->second);
  };
  for (size_t i = 0; i < rest.size(); ++i) {
    const auto* sgd = rest.get<SgdUpdate>(i);
    const bool sums =
        rest.get<AllReduceStart>(i) != nullptr || rest.get<AllReduceWait>(i) != nullptr;
    if (sums || (sgd != nullptr && grad_of.count(sgd->dw.id) != 0)) continue;
    alone.program.add(rest.program.ops[i]);
    if (const auto* grad = rest.get<LinearGradW>(i)) {
      use(grad->dw);
      use(grad->db);
    }
  }
  return alone;
}

// Returns the segments that the ranks of one host share; null for a single process.
SharedSegment* segment_of(const Runtime& runtime) {
  Communicator* ranks = runtime.ranks();
  return ranks != nullptr && ranks->size() > 1 ? dynamic_cast<SharedSegment*>(ranks) : nullptr;
}

template <typename T>
class SharedTrainStep final : public Step {
 public:
  SharedTrainStep(const MlpStepOps& ops, const Binding& binding)
      : memory_(ops, binding),
        pool_(cpu_runtime(binding.runtime()).pool()),
        segment_(segment_of(binding.runtime())),
        shared_(mlp_layers<T>(ops, &binding), pool_.size()) {
    const Communicator* ranks = binding.runtime().ranks();
    std::byte* workspace = binding.workspace();
    if (segment_ != nullptr) {
      const auto segments = segment_->segments();
      shared_.bind({segments.begin(), segments.end()}, ranks->rank(), workspace);
    } else {
      shared_.bind({workspace + shared_.workspace_bytes()}, 0, workspace);
    }
  }

  void run() override {
    memory_.run([this](const MlpBatch<T>& batch, int64_t n, double scale,
                       const MlpIteration<T>& iteration) {
      return shared_.run(pool_, batch, n, scale, iteration.sgd,
                         [this](const std::function<bool()>& done) {
                           if (segment_ != nullptr) return segment_->wait_until(done);
                           while (!done())
                             std::this_thread::yield();  // for other threads of this process
                         });
    });
  }

 private:
  MlpStepMemory<T> memory_;
  ThreadPool& pool_;
  SharedSegment* segment_;
  SharedMlpStep<T> shared_;
};

Cover covers_mlp_shared(const RemainingOps& rest) {
  const AloneStep alone = alone_step(rest);
  if (!alone.refusal.empty()) return Cover::no(alone.refusal);
  const MlpStepOps ops = match_mlp_step({alone.program, 0, rest.runtime});
  if (!ops.refusal.empty()) return Cover::no(ops.refusal);
  if (ops.copies) return Cover::no("takes no copies of weights");
  if (ops.ops != alone.program.ops.size()) return Cover::no("more than a step");
  if (!takes(ops.inputs->y.dtype)) return Cover::no("takes fp32 and fp64 only");
  if (ops.layers.size() > SharedMlpStep<float>::kMostLanes) return Cover::no("too many layers");
  const Communicator* ranks = rest.runtime.ranks();
  SharedSegment* segment = segment_of(rest.runtime);
  const bool several = ranks != nullptr && ranks->size() > 1;
  if (several && (segment == nullptr || segment->segments().empty())) {
    return Cover::no("the ranks share no memory");
  }
  Cover cover = Cover::of(rest.size());
  for (const ValueInfo& info : rest.program.values) {
    if (info.role == Role::temp) cover.skips.push_back(info.value.id);
  }
  const int threads = cpu_runtime(rest.runtime).pool().size();
  const int64_t n = ops.inputs->y.shape[0];
  size_t wanted = 0;
  with_type(ops.inputs->y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const SharedMlpStep<T> step(mlp_layers<T>(ops, nullptr), threads);
    wanted = step.segment_bytes(n);
    cover.workspace = step.workspace_bytes() + (several ? 0 : wanted);
  });
  if (several && wanted > segment->segment_bytes()) {
    return Cover::no(fmt::format("wants {} bytes of shared memory a rank", wanted));
  }
  if (several && !segment->reserve(wanted)) {
    return Cover::no(fmt::format("no {} bytes are left in /dev/shm", wanted));
  }
  return cover;
}

std::unique_ptr<Step> prepare_mlp_shared(const Span& span, const Binding& binding) {
  const AloneStep alone = alone_step({span.program, span.begin, binding.runtime()});
  const MlpStepOps ops = match_mlp_step({alone.program, 0, binding.runtime()});
  return with_type(ops.inputs->y.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    return std::make_unique<SharedTrainStep<decltype(zero)>>(ops, binding);
  });
}

}  // namespace

Kernel mlp_shared_kernel() {
  Kernel kernel;
  kernel.name = "cpu.mlp_train_all_reduce.shared";
  kernel.covers = covers_mlp_shared;
  kernel.prepare = prepare_mlp_shared;
  return kernel;
}

}  // namespace ridgeline::cpu::simd
