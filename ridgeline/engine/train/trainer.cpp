#include "ridgeline/engine/train/trainer.h"

#include <algorithm>

#include "ridgeline/core/launch_group.h"
#include "ridgeline/core/text.h"
#include "ridgeline/engine/clock.h"
#include "ridgeline/engine/train/fine_tune.h"
#include "ridgeline/engine/user_data.h"

namespace ridgeline::engine {
namespace {

// Returns how many steps one launch may make: enough to hide the host's part. A GPU kernel that
// makes them all fetches the weights once per launch, so a GPU makes as many as there are between
// lines of the log.
// A joint launch of many runs costs each of them a rendezvous with all others.
int64_t steps_a_launch(Device device) {
  if (LaunchGroup::current() != nullptr) return 512;
  return device.is_host() ? 32 : 128;
}

nn::Model initial_model(const Config& config, const data::DataSet& set) {
  nn::Model model = config.build_model(set.train.sample_shape());
  check_outputs(model, set.train, config.data.name, config.train.loss);
  if (set.has_test()) check_codes(model, set.test, config.data.name + " (test)");
  if (set.validation) check_codes(model, *set.validation, config.data.name + " (validation)");
  model.initialise(config.train.seed);
  return model;
}

// Checks the samples of a full batch. Without this check an epoch would silently be one smaller
// batch.
int64_t checked_batch(const Config& config, const data::SampleSet& train) {
  if (train.streams > 0) return train.streams;
  if (config.train.batch <= train.size()) return config.train.batch;
  throw_error(ErrorKind::usage,
              "train.batch {} is more than the {} of {}; give at most {}, as in --set "
              "train.batch={}",
              config.train.batch, counted(train.size(), "training sample"), config.data.name,
              train.size(), train.size());
}

// Ranks that stream make fewer steps per launch: all do, or none.
bool on_any_rank(Communicator* ranks, bool mine) {
  return ranks == nullptr ? mine : ranks->reduce(double(mine), Reduce::max) != 0;
}

}  // namespace

nn::LowerOptions Trainer::train_options(int64_t batch, int64_t repeats) const {
  nn::LowerOptions options = whole_options(batch, repeats);
  if (ranks_ == 1) return options;
  const Range mine = data::shard(0, batch, rank_, ranks_);
  options.batch = local_samples(batch);
  options.global_batch = batch;
  options.sample_offset = mine.begin;
  options.idle = mine.begin == mine.end;
  options.ranks = ranks_;
  options.gradient_wire = config_.run.reduce;
  return options;
}

int64_t Trainer::local_samples(int64_t batch) const {
  const Range mine = data::shard(0, batch, rank_, ranks_);
  return std::max<int64_t>(1, mine.end - mine.begin);
}

// Writes the samples that this rank computes, batch after batch, which the gathers of a launch
// read.
void Trainer::local_order(int64_t epoch, std::span<int32_t> order) const {
  // The chunks of a text stay in order, because each batch continues the one before.
  const bool shuffle = config_.train.shuffle && set_->train.streams == 0;
  if (ranks_ == 1) {
    data::epoch_order(config_.train.seed, uint64_t(epoch), shuffle, order);
    return;
  }
  const std::vector<int32_t> all =
      data::epoch_order(batches_.samples(), config_.train.seed, uint64_t(epoch), shuffle);
  auto to = order.begin();
  for (int64_t k = 0; k < batches_.batches(); ++k) {
    const int64_t begin = data::shard(batches_.begin(k), batches_.size(k), rank_, ranks_).begin;
    // The sample of an idle rank has no effect, so any will do.
    const int64_t first = std::min(begin, batches_.samples() - 1);
    to = std::copy_n(all.begin() + first, local_samples(batches_.size(k)), to);
  }
}

nn::LowerOptions Trainer::whole_options(int64_t batch, int64_t repeats) const {
  nn::LowerOptions options = lower_options(config_, scaling_, set_->train);
  options.mode = nn::Mode::train;
  options.batch = batch;
  options.repeats = repeats;
  options.set_samples = options.order_samples = set_->train.size();
  options.frozen = frozen_layers(config_.train.freeze, model_);
  return options;
}

Trainer::Trainer(Machine& machine, const Config& config, std::shared_ptr<const data::DataSet> set,
                 const KernelNames& pinned)
    : machine_(machine),
      rank_(machine.ranks() != nullptr ? machine.ranks()->rank() : 0),
      ranks_(machine.ranks() != nullptr ? machine.ranks()->size() : 1),
      config_(settled(config, *set)),
      set_(std::move(set)),
      scaling_(scaling_for(config.data.scale, set_->train)),
      batches_(set_->train.size(), checked_batch(config_, set_->train), config.train.drop_last),
      model_(initial_model(config_, *set_)),
      streams_(on_any_rank(machine.ranks(),
                           better_streamed(machine.runtime(), set_->train, config.data.resident))),
      weights_(machine.runtime(), model_,
               nn::lower(model_, train_options(batches_.full_size(), 1))),
      pinned_(pinned) {
  const std::vector<double> units = target_units(set_->preparation.get(), set_->train);
  if (set_->has_test()) {
    evaluator_.emplace(machine, config_, model_, set_->test, scaling_, pinned.evaluate,
                       pinned.evaluate_tail, /*stays=*/true);
    evaluator_->set_units(units);
  }
  if (set_->validation) {
    validator_.emplace(machine, config_, model_, *set_->validation, scaling_, pinned.validate,
                       pinned.validate_tail, /*stays=*/true);
    validator_->set_units(units);
  }
  nn::check(config.train.schedule, run_length());
  const int64_t batch = batches_.full_size(), last = batches_.size(batches_.batches() - 1);
  if (streams_) {
    streamed_.emplace(machine.runtime(), set_->train, launch_steps() * local_samples(batch),
                      whole_options(batch, 1).augment);
  } else {
    resident_.emplace(machine.runtime(), set_->train, /*stays=*/true);
  }
  full_ = make_runner(batch, launch_steps(), pinned.train);
  // A step of fewer samples once an epoch is not worth measuring for: it takes no longer than
  // others with the same kernels.
  if (last != batch) {
    tail_ = make_runner(last, 1, pinned.tail.empty() ? full_->kernel_names() : pinned.tail);
  }
}

int64_t Trainer::launch_steps() const {
  const int64_t all = batches_.batches(), batch = batches_.full_size();
  const int64_t full = all - (batches_.size(all - 1) != batch ? 1 : 0);
  int64_t most = steps_a_launch(machine_.device());
  if (streams_) {
    // Three windows of the data are on the device, and two in pinned memory.
    constexpr int64_t kMostBytes = int64_t{64} << 20;
    const auto bytes = int64_t(set_->train.input_bytes());
    most = std::min(most, kMostBytes / (batch * bytes));
  }
  return std::clamp<int64_t>(full, 1, std::max<int64_t>(1, most));
}

// Makes the device compute the order of an epoch if it can: of a large set that one rank trains on.
bool Trainer::order_on_device(int64_t epoch) {
  const bool shuffle = config_.train.shuffle && set_->train.streams == 0;
  if (!resident_ || ranks_ > 1 || !shuffle) return false;
  const auto network = data::epoch_network(batches_.samples(), config_.train.seed, uint64_t(epoch));
  return network && resident_->make_order(*network);
}

void Trainer::hold_order(int64_t epoch) {
  held_epoch_ = epoch;
  on_device_ = order_on_device(epoch);
  if (on_device_) return;
  if (epoch != next_epoch_) make_order(epoch);
  if (streamed_) {
    streamed_->set_order(next_order_, epoch);
  } else {
    resident_->place_order();
  }
}

void Trainer::make_order(int64_t epoch) {
  next_epoch_ = epoch;
  if (resident_) {
    local_order(epoch, resident_->order_block());
    resident_->send_order();
  } else {
    next_order_.resize(size_t(batches_.samples()));
    local_order(epoch, next_order_);
  }
}

// Runs while the device makes the first launch of an epoch: shuffling takes as long as many steps
// of a small net on a GPU, and the last launch may have few steps.
void Trainer::make_next_order(int64_t epoch) {
  if (on_device_) return;
  const bool last = (epoch + 1) * batches_.batches() >= total_steps();
  if (!last && next_epoch_ != epoch + 1) make_order(epoch + 1);
}

// Runs while the device makes the steps just launched.
void Trainer::prefetch_next(int64_t epoch) {
  const data::Position next = batches_.at_step(step_);
  if (next.epoch != epoch || step_ >= total_steps()) return;
  const int64_t samples = local_samples(batches_.size(next.batch));
  const bool partial = batches_.size(next.batch) != batches_.full_size();
  const int64_t full_left = batches_.batches() - (tail_ ? 1 : 0) - next.batch;
  const int64_t steps = partial ? 1 : std::min(full_left, full_->repeats());
  streamed_->prefetch(next.batch * local_samples(batches_.full_size()), steps * samples);
}

std::unique_ptr<Runner> Trainer::make_runner(int64_t batch, int64_t repeats,
                                             const std::vector<std::string>& pinned) {
  nn::LowerOptions options = train_options(batch, repeats);
  if (streamed_) {
    options.set_samples = options.order_samples = streamed_->window();
    options.augment = {};  // done on the host
  }
  nn::Lowered lowered = nn::lower(model_, options);
  Externals shared;
  streamed_ ? streamed_->bind(lowered, shared) : resident_->bind(lowered, shared);
  weights_.bind(lowered, shared);
  return std::make_unique<Runner>(machine_, std::move(lowered), shared, pinned);
}

int64_t Trainer::total_steps() const {
  const int64_t all = checked_mul(config_.train.epochs, batches_.batches(), "steps of the run");
  return config_.train.max_steps > 0 ? std::min(all, config_.train.max_steps) : all;
}

double Trainer::lr(int64_t step) const {
  const double scheduled =
      nn::lr(config_.train.schedule, config_.train.optimizer.lr, step, run_length());
  return rate_change_ ? rate_change_(step, scheduled) : scheduled;
}

int64_t Trainer::advance(int64_t most) {
  const data::Position at = batches_.at_step(step_);
  if (at.epoch != held_epoch_) {
    hold_order(at.epoch);
    if (at.batch == 0) weights_.clear_carried();
  }
  const bool partial = batches_.size(at.batch) != batches_.full_size();
  const int64_t full_left = batches_.batches() - (tail_ ? 1 : 0) - at.batch;
  last_ = partial ? tail_.get() : full_.get();
  last_batch_ = batches_.size(at.batch);
  const int64_t steps = partial ? 1 : std::min({most, full_left, full_->repeats()});
  rates_.clear();
  for (int64_t i = 0; i < steps; ++i) rates_.push_back(lr(step_ + i));
  Communicator* ranks = machine_.ranks();
  const double before = ranks != nullptr ? ranks->blocked_seconds() : 0;
  if (ranks != nullptr) ranks->begin_work();
  const int64_t first = at.batch * local_samples(batches_.full_size());
  if (streamed_) streamed_->place(first, steps * local_samples(last_batch_));
  last_->launch(streamed_ ? 0 : first, steps, step_, rates_, at.epoch);
  if (ranks != nullptr) {
    // The steps may contain collectives of the device; ours must not come between them.
    machine_.runtime().synchronize();
    ranks->end_work();
    blocked_ = ranks->blocked_seconds() - before;
  }
  step_ += steps;
  fetched_ = false;
  if (streamed_) prefetch_next(at.epoch);
  make_next_order(at.epoch);
  return steps;
}

// Each rank has its share of the loss and of the count; their sums over the ranks are those of the
// batch.
void Trainer::fetch() {
  if (fetched_) return;
  fetched_ = true;
  const auto losses = last_->losses();
  const auto corrects = last_->corrects();
  losses_.assign(losses.begin(), losses.end());
  corrects_.assign(corrects.begin(), corrects.end());
  if (ranks_ == 1) return;
  const bool idle = train_options(last_batch_, 1).idle;
  std::vector<double> all = losses_;
  for (const int32_t each : corrects_) all.push_back(idle ? 0.0 : double(each));
  machine_.ranks()->sum(all);
  for (size_t i = 0; i < losses_.size(); ++i) losses_[i] = all[i];
  for (size_t i = 0; i < corrects_.size(); ++i) corrects_[i] = int32_t(all[losses_.size() + i]);
}

int64_t Trainer::clipped_steps() const {
  const Value& value = full_->lowered().clipped;
  return value ? full_->read<int64_t>(value).front() : 0;
}

std::optional<double> Trainer::gradient_norm() const {
  if (last_ == nullptr || !last_->lowered().grad_norm) return std::nullopt;
  return last_->read<double>(last_->lowered().grad_norm).front();
}

double Trainer::loss_scale() const {
  const Value& value = full_->lowered().loss_scale;
  return value ? full_->read<double>(value).front() : 0;
}

int64_t Trainer::skipped_steps() const {
  const Value& value = full_->lowered().skipped;
  return value ? full_->read<int64_t>(value).front() : 0;
}

void Trainer::restore(const Snapshot& snapshot, int64_t step) {
  weights_.upload(snapshot);
  step_ = step;
}

void Trainer::prepare_evaluation() {
  const int64_t steps_between = batches_.batches() * config_.train.eval_every;
  const int64_t evaluations = (total_steps() + steps_between - 1) / steps_between;
  for (auto* each : {&evaluator_, &validator_}) {
    if (!*each) continue;
    machine_.expect_steps(evaluations * (*each)->batches());
    (*each)->prepare(weights_);
  }
}

Snapshot Trainer::model_snapshot() const {
  Snapshot all = snapshot(), kept;
  for (Snapshot::Item& item : all.items) {
    const bool is_param = std::ranges::any_of(
        model_.params(), [&](const nn::Param& param) { return param.name == item.name; });
    if (is_param) kept.items.push_back(std::move(item));
  }
  return kept;
}

void Trainer::restore_model(const Snapshot& weights) {
  Snapshot all = snapshot();
  for (const Snapshot::Item& from : weights.items) {
    const auto to = std::ranges::find(all.items, from.name, &Snapshot::Item::name);
    if (to != all.items.end()) convert(from.value.view(), to->value.view());
  }
  weights_.upload(all);
}

void Trainer::start_from(const nn::Model& model) {
  const auto same = [](const nn::Param& a, const nn::Param& b) {
    return a.name == b.name && a.value.view().shape == b.value.view().shape;
  };
  if (!std::ranges::equal(model.params(), model_.params(), same)) {
    throw_error(ErrorKind::usage,
                "the model to go on from has other layers than the config: its weights do not fit");
  }
  weights_.upload(model);
}

const nn::Model& Trainer::model() {
  weights_.download_to(model_);
  return model_;
}

KernelNames Trainer::kernels() const {
  KernelNames names = pinned_;
  names.train = full_->kernel_names();
  names.tail = tail_ ? tail_->kernel_names() : std::vector<std::string>{};
  const auto put = [](const Evaluator& from, auto& main, auto& tail) {
    if (!from.planned()) return;
    main = from.runner().kernel_names();
    tail = from.tail() != nullptr ? from.tail()->kernel_names() : std::vector<std::string>{};
  };
  if (evaluator_) put(*evaluator_, names.evaluate, names.evaluate_tail);
  if (validator_) put(*validator_, names.validate, names.validate_tail);
  return names;
}

double Trainer::tuning_seconds() const {
  double seconds = full_->explanation().tuning_seconds;
  if (tail_) seconds += tail_->explanation().tuning_seconds;
  for (const auto* each : {&evaluator_, &validator_}) {
    if (!*each || !(*each)->planned()) continue;
    seconds += (*each)->runner().explanation().tuning_seconds;
    if (const Runner* rest = (*each)->tail()) seconds += rest->explanation().tuning_seconds;
  }
  return seconds;
}

}  // namespace ridgeline::engine
