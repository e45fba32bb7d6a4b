#include "ridgeline/engine/trainer.h"

#include <algorithm>

#include "ridgeline/engine/clock.h"

namespace ridgeline::engine {
namespace {

// Steps that one launch may make: enough for the host's part to vanish.
constexpr int64_t kRepeats = 32;

nn::Model initial_model(const Config& config, const data::DataSet& set) {
  nn::Model model = config.build_model(set.train.item_shape());
  check_outputs(model, set.train, config.data.name);
  model.initialise(config.train.seed);
  return model;
}

}  // namespace

nn::LowerOptions Trainer::train_options(int64_t batch, int64_t repeats) const {
  nn::LowerOptions options = lower_options(config_, scaling_, set_->train);
  options.mode = nn::Mode::train;
  options.batch = batch;
  options.repeats = repeats;
  options.set_rows = options.order_rows = set_->train.size();
  return options;
}

Trainer::Trainer(Machine& machine, const Config& config, std::shared_ptr<const data::DataSet> set,
                 const RowNames& pinned)
    : machine_(machine),
      config_(config),
      set_(std::move(set)),
      scaling_(scaling_for(config.data.scale, set_->train)),
      batches_(set_->train.size(),
               set_->train.streams > 0 ? set_->train.streams
                                       : std::min(config.train.batch, set_->train.size()),
               config.train.drop_last),
      model_(initial_model(config, *set_)),
      resident_(machine.runtime(), set_->train),
      weights_(machine.runtime(), model_,
               nn::lower(model_, train_options(batches_.full_size(), 1))),
      evaluator_(machine, config, model_, set_->test, scaling_, pinned.evaluate),
      pinned_(pinned) {
  const int64_t batch = batches_.full_size(), all = batches_.batches();
  const bool partial = batches_.size(all - 1) != batch;
  const int64_t full = all - (partial ? 1 : 0);
  full_ = make_runner(batch, std::clamp<int64_t>(full, 1, kRepeats), pinned.train);
  if (partial) tail_ = make_runner(batches_.size(all - 1), 1, pinned.tail);
}

std::unique_ptr<Runner> Trainer::make_runner(int64_t batch, int64_t repeats,
                                             const std::vector<std::string>& pinned) {
  nn::Lowered lowered = nn::lower(model_, train_options(batch, repeats));
  Externals shared;
  resident_.bind(lowered, shared);
  weights_.bind(lowered, shared);
  return std::make_unique<Runner>(machine_, std::move(lowered), shared, pinned);
}

int64_t Trainer::total_steps() const {
  const int64_t all = checked_mul(config_.train.epochs, batches_.batches(), "steps of the run");
  return config_.train.max_steps > 0 ? std::min(all, config_.train.max_steps) : all;
}

// max_steps only ends a run early: it does not bend the schedule, so N + N steps equal 2N.
double Trainer::lr(int64_t step) const {
  const nn::RunLength run{batches_.batches(), config_.train.epochs * batches_.batches()};
  return nn::lr(config_.train.schedule, config_.train.optimizer.lr, step, run);
}

int64_t Trainer::advance(int64_t most) {
  const data::Position at = batches_.at_step(step_);
  if (at.epoch != held_epoch_) {
    // The pieces of a text keep their order: each batch continues the one before.
    const bool shuffle = config_.train.shuffle && set_->train.streams == 0;
    resident_.set_order(
        data::epoch_order(batches_.rows(), config_.train.seed, uint64_t(at.epoch), shuffle));
    if (at.batch == 0) weights_.clear_carried();
    held_epoch_ = at.epoch;
  }
  const bool partial = batches_.size(at.batch) != batches_.full_size();
  const int64_t full_left = batches_.batches() - (tail_ ? 1 : 0) - at.batch;
  last_ = partial ? tail_.get() : full_.get();
  last_batch_ = batches_.size(at.batch);
  const int64_t steps = partial ? 1 : std::min({most, full_left, full_->repeats()});
  rates_.clear();
  for (int64_t i = 0; i < steps; ++i) rates_.push_back(lr(step_ + i));
  last_->launch(batches_.begin(at.batch), steps, step_, rates_);
  step_ += steps;
  return steps;
}

int64_t Trainer::clipped_steps() const {
  const Value& value = full_->lowered().clipped;
  return value ? full_->read<int64_t>(value).front() : 0;
}

std::optional<double> Trainer::gradient_norm() const {
  if (last_ == nullptr || !last_->lowered().grad_norm) return std::nullopt;
  return last_->read<double>(last_->lowered().grad_norm).front();
}

void Trainer::restore(const Snapshot& snapshot, int64_t step) {
  weights_.upload(snapshot);
  step_ = step;
}

const nn::Model& Trainer::model() {
  weights_.download_to(model_);
  return model_;
}

RowNames Trainer::rows() const {
  RowNames names{full_->row_names(), {}, pinned_.evaluate};
  if (tail_) names.tail = tail_->row_names();
  if (evaluator_.planned()) names.evaluate = evaluator_.runner().row_names();
  return names;
}

double Trainer::tuning_seconds() const {
  double seconds = full_->explanation().tuning_seconds;
  if (tail_) seconds += tail_->explanation().tuning_seconds;
  if (evaluator_.planned()) seconds += evaluator_.runner().explanation().tuning_seconds;
  return seconds;
}

}  // namespace ridgeline::engine
