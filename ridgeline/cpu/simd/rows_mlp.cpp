#include "ridgeline/cpu/simd/mlp_memory.h"

namespace ridgeline::cpu::simd {
namespace {

template <typename T>
class MlpTrainStep final : public Step {
 public:
  MlpTrainStep(const MlpStepOps& ops, const Binding& binding)
      : memory_(ops, binding),
        pool_(cpu_runtime(binding.runtime()).pool()),
        step_(mlp_layers<T>(ops, &binding), ops.images->y.shape[0], pool_.size()) {
    step_.bind(binding.workspace());
  }

  void run() override {
    memory_.run([this](const MlpBatch<T>& batch, int64_t n, double scale, const Sgd<T>& sgd) {
      return step_.run(pool_, batch, n, scale, sgd);
    });
  }

 private:
  MlpStepMemory<T> memory_;
  ThreadPool& pool_;
  MlpStep<T> step_;
};

Cover covers_mlp(const Rest& rest) {
  const MlpStepOps ops = match_mlp_step(rest);
  if (!ops.refusal.empty()) return Cover::no(ops.refusal);
  if (ops.copies) return Cover::no("takes no copies of weights");
  if (!takes(ops.images->y.dtype)) return Cover::no("takes fp32 and fp64 only");
  Cover cover = Cover::of(ops.ops);
  cover.skips = ops.inside;
  const int threads = cpu_runtime(rest.runtime).pool().size();
  cover.workspace = with_type(ops.images->y.dtype, [&](auto zero) {
    using T = decltype(zero);
    return MlpStep<T>(mlp_layers<T>(ops, nullptr), ops.images->y.shape[0], threads)
        .workspace_bytes();
  });
  return cover;
}

std::unique_ptr<Step> prepare_mlp(const Span& span, const Binding& binding) {
  const MlpStepOps ops = match_mlp_step({span.program, span.begin, binding.runtime()});
  return with_type(ops.images->y.dtype, [&](auto zero) -> std::unique_ptr<Step> {
    return std::make_unique<MlpTrainStep<decltype(zero)>>(ops, binding);
  });
}

}  // namespace

Table mlp_rows() {
  Impl row;
  row.name = "cpu.mlp_train.simd";
  row.covers = covers_mlp;
  row.prepare = prepare_mlp;
  return {row, mlp_shared_row(), mlp_gradients_row()};
}

}  // namespace ridgeline::cpu::simd
