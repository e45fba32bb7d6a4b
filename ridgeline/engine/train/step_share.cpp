#include "ridgeline/engine/train/step_share.h"

namespace ridgeline::engine {
namespace {

const data::SampleSet& resident(const Trainer& trainer) {
  if (trainer.streams_data()) {
    throw_error(
        ErrorKind::usage,
        "steps of other batches are measured on a set that lies on the device, and this one "
        "does not fit or has data.resident = false; use a smaller set for this");
  }
  return trainer.set().train;
}

}  // namespace

StepShare::StepShare(Machine& machine, Trainer& trainer, int64_t batch, int ranks)
    : runtime_(machine.runtime()), set_(machine.runtime(), resident(trainer)) {
  nn::LowerOptions options = trainer.whole_options(batch, 1);
  options.batch = (batch + ranks - 1) / ranks;
  options.global_batch = batch;
  options.ranks = ranks > 1 ? ranks : 0;
  options.gradient_wire = trainer.config().run.reduce;
  samples_ = options.batch;
  nn::Lowered lowered = nn::lower(trainer.model(), options);
  for (const Op& op : lowered.program.ops) {
    const auto* start = std::get_if<AllReduceStart>(&op);
    if (start == nullptr) continue;
    bytes_ += size_of(start->grads);
    network_bytes_ += start->network_bytes();
    messages_.push_back(size_of(start->grads));
  }
  weights_ = std::make_unique<Weights>(runtime_, trainer.model(), lowered);
  Externals shared;
  set_.bind(lowered, shared);
  weights_->bind(lowered, shared);
  runner_ = std::make_unique<Runner>(machine, std::move(lowered), shared);
}

double StepShare::seconds() {
  const double rate = 0;
  runner_->launch(0, 1, 0, {&rate, 1});  // a rate of zero keeps the weights
  return runtime_.time(
      [&] {
        runner_->set_inputs(0, 0, {&rate, 1});
        runner_->plan().run(1);
      },
      0.2);
}

}  // namespace ridgeline::engine
