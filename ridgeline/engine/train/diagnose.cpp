#include "ridgeline/engine/train/diagnose.h"

#include <cmath>
#include <limits>
#include <string_view>

namespace ridgeline::engine {
namespace {

// Names an op's layer, "layer 2 (relu)", and whether the op is its gradient or its update.
std::string place(const nn::Model& model, const nn::Lowered& lowered, size_t op) {
  const int layer = lowered.op_layer[op];
  const std::string_view what = name(lowered.program.ops[op]);
  if (layer < 0) return what == "gather" ? "the input" : fmt::format("the loss ({})", what);
  const std::string label = model.graph().label(layer);
  if (what.ends_with("_update")) return "the update of " + label;
  // The loss op separates the forward from the backward ops.
  for (size_t i = 0; i < op; ++i) {
    const bool data = name(lowered.program.ops[i]) == std::string_view("gather");
    if (lowered.op_layer[i] < 0 && !data) return "the gradient of " + label;
  }
  return label;
}

// Makes steps of a run with reference kernels, one op at a time, in its own memory. In a run over
// several ranks each rank makes whole steps.
class Inspector {
 public:
  Inspector(Trainer& trainer, int64_t batch)
      : trainer_(trainer),
        model_(trainer.model()),
        machine_(Machine::reference()),
        set_(machine_.runtime(), trainer.set().train),
        weights_(machine_.runtime(), model_,
                 nn::lower(model_, trainer.whole_options(trainer.batches().full_size(), 1))) {
    nn::Lowered lowered = nn::lower(model_, trainer.whole_options(batch, 1));
    Externals shared;
    set_.bind(lowered, shared);
    weights_.bind(lowered, shared);
    runner_ = std::make_unique<Runner>(machine_, std::move(lowered), shared);
  }

  // Makes step number `step` (from 0) from `before`, which becomes the state after it. Returns the
  // first op that wrote a value that is not finite, or "".
  std::string step(int64_t step, Snapshot& before) {
    const data::Position at = trainer_.batches().at_step(step);
    const TrainConfig& train = trainer_.config().train;
    set_.set_order(data::epoch_order(trainer_.batches().samples(), train.seed, uint64_t(at.epoch),
                                     train.shuffle));
    weights_.upload(before);
    const double rate = trainer_.lr(step);
    runner_->set_inputs(trainer_.batches().begin(at.batch), step, {&rate, 1}, at.epoch);
    std::string found;
    Plan& plan = runner_->plan();
    for (size_t i = 0; i < plan.choices().size() && found.empty(); ++i) {
      plan.run_choice(i);
      const Choice& choice = plan.choices()[i];
      for (size_t op = choice.begin; op < choice.end && found.empty(); ++op) {
        if (!outputs_finite(op)) found = place(model_, runner_->lowered(), op);
      }
    }
    before = weights_.download();
    return found;
  }

 private:
  bool outputs_finite(size_t op) {
    for (const Value& value : writes(runner_->plan().program().ops[op])) {
      const Tensor tensor = runner_->plan().peek(value.id);
      if (tensor.data != nullptr && !all_finite(tensor)) return false;
    }
    return true;
  }

  Trainer& trainer_;
  const nn::Model& model_;
  Machine machine_;
  ResidentSet set_;
  Weights weights_;
  std::unique_ptr<Runner> runner_;
};

}  // namespace

Diagnosis diagnose(Trainer& trainer, const Snapshot& snapshot, int64_t step, int64_t end) {
  Diagnosis diagnosis{end, {}, {}};
  trainer.restore(snapshot, step);
  while (!diagnosis.loss && trainer.step() < end) {
    const int64_t before = trainer.step();
    trainer.advance(end - before);
    const auto losses = trainer.losses();
    for (size_t i = 0; i < losses.size() && !diagnosis.loss; ++i) {
      if (std::isfinite(losses[i])) continue;
      diagnosis.step = before + int64_t(i) + 1;
      diagnosis.loss = losses[i];
    }
  }
  // The step before is examined too: its gradients may have corrupted the weights.
  int64_t at = std::max(step, diagnosis.step - 2);
  trainer.restore(snapshot, step);
  while (trainer.step() < at) trainer.advance(at - trainer.step());
  Snapshot state = trainer.snapshot();
  for (; at < diagnosis.step; ++at) {
    const int64_t batch = trainer.batches().size(trainer.batches().at_step(at).batch);
    Inspector inspector(trainer, batch);
    if (const std::string where = inspector.step(at, state); !where.empty()) {
      diagnosis.where = where;
      break;
    }
  }
  return diagnosis;
}

}  // namespace ridgeline::engine
