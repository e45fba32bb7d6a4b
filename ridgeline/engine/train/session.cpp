#include "ridgeline/engine/train/session.h"

#include <limits>

#include "ridgeline/engine/train/train_run.h"

namespace ridgeline::engine {

TrainSession::TrainSession(const Config& config, const TrainOptions& options)
    : run_(std::make_unique<TrainRun>(config, options)) {
  run_->begin();
}

TrainSession::~TrainSession() = default;

void TrainSession::run_to_epoch(int64_t epochs) {
  run_->run_to(checked_mul(epochs, run_->trainer().steps_per_epoch(), "steps of the run"));
}

bool TrainSession::has_ended() const { return run_->has_ended(); }
int TrainSession::stopped_by() const { return run_->report().stopped_by; }
int64_t TrainSession::step() const { return run_->trainer().step(); }
int64_t TrainSession::epoch() const {
  return run_->trainer().step() / run_->trainer().steps_per_epoch();
}
double TrainSession::score() { return run_->score(); }
KernelNames TrainSession::kernels() const { return run_->trainer().kernels(); }
const TrainReport& TrainSession::report() const { return run_->report(); }
void TrainSession::save() { run_->save(); }

TrainReport TrainSession::finish() {
  if (run_->report().stopped_by == 0) run_->end_here();
  return run_->finish();
}

std::vector<std::byte> TrainSession::model_bytes() { return model_file_bytes(run_->trainer()); }

}  // namespace ridgeline::engine
