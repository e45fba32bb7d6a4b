#include "ridgeline/engine/train/train.h"

#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "ridgeline/core/file.h"
#include "ridgeline/core/launch_group.h"
#include "ridgeline/engine/ranks.h"
#include "ridgeline/engine/signals.h"
#include "ridgeline/engine/train/diagnose.h"
#include "ridgeline/engine/train/train_run.h"

namespace ridgeline::engine {
namespace {

constexpr int64_t kScaleSteps = 128;    // between checks of the loss scale
constexpr double kLaunchSeconds = 0.1;  // the longest that signals and the bar wait
constexpr double kSafeSeconds = 2;      // between snapshots

}  // namespace

int64_t launch_steps(int64_t most, double step_seconds) {
  // The first launch is a single step, because the time of a step is unknown yet.
  const double fit = step_seconds > 0 ? kLaunchSeconds / step_seconds : 1;
  if (fit >= double(most)) return std::max<int64_t>(1, most);
  return int64_t(std::bit_floor(uint64_t(std::max(1.0, fit))));
}

// Counts the steps up to the next boundary where the host has something to do.
int64_t TrainRun::steps_to_make() const {
  const int64_t step = trainer_->step();
  int64_t most = end_ - step;
  const int64_t batch = trainer_->batches().at_step(step).batch;
  // Joint launches of a group should be long, and nobody reads their logs.
  const bool alone = LaunchGroup::current() == nullptr;
  if (alone || config_.run.loss_scale.kind != nn::LossScale::Kind::none) {
    most = std::min(most, kScaleSteps - batch % kScaleSteps);
  }
  if (alone) most = std::min(most, config_.train.log_steps - batch % config_.train.log_steps);
  const int64_t every = options_.out.empty() ? 0 : config_.train.checkpoint_steps;
  if (every > 0) most = std::min(most, every - step % every);
  return launch_steps(most, step_seconds_);
}

void TrainRun::advance() {
  const int64_t before = trainer_->step();
  const Clock clock;
  const int64_t made = trainer_->advance(agreed(steps_to_make()));
  const int64_t after = trainer_->step();
  const auto is_due = [&](int64_t every) {  // or at the end of an epoch or run
    return after == end_ || after % trainer_->steps_per_epoch() % every == 0;
  };
  const bool log_point = is_due(config_.train.log_steps);
  read_results(before);  // the next launch overwrites them
  const double seconds = clock.seconds();
  report_span("launch", clock, made);
  blocked_seconds_ += trainer_->blocked_seconds();
  report_.train_seconds += seconds;
  report_.steps_here += made;
  step_seconds_ = seconds / double(made);
  samples_here_ += made * trainer_->last_batch();
  const bool full = trainer_->last_batch() == trainer_->batches().full_size();
  Runner& runner = full ? trainer_->runner() : *trainer_->tail();
  flops_ += double(made) * runner.plan().program().flops();
  limit_seconds_ += double(made) * (full ? full_limit_ : tail_limit_).seconds();
  evaluated_ = false;
  if (bad_since_ > 0 && (after > bad_since_ || after == end_)) {
    give_up("loss", std::numeric_limits<double>::quiet_NaN(), after);
  }
  if (is_due(kScaleSteps)) check_loss_scale();
  if (progress_.due()) show();
  if (log_point && bad_since_ == 0) {
    log();
    keep_safe();
  }
}

void TrainRun::read_results(int64_t before) {
  const auto losses = trainer_->losses();
  const auto corrects = trainer_->corrects();
  for (size_t i = 0; i < losses.size(); ++i) {
    const int64_t step = before + int64_t(i) + 1;
    if (!std::isfinite(losses[i])) {
      if (bad_since_ == 0) bad_since_ = step;
      continue;
    }
    if (bad_since_ > 0) {
      progress_.warning(
          fmt::format("the loss was not finite at step {}, and is again", bad_since_));
      bad_since_ = 0;
    }
    const int64_t targets = trainer_->last_batch() * trainer_->set().train.targets_per_sample();
    for (Tally* tally : {&epoch_, &since_log_}) {
      corrects.empty() ? tally->add(losses[i], targets)
                       : tally->add(losses[i], targets, corrects[i]);
    }
  }
}

// Keeps a snapshot from which a NaN can be traced.
void TrainRun::keep_safe() {
  if (agreed(int32_t(since_start_.seconds() - safe_at_ < kSafeSeconds)) != 0) return;
  Snapshot now = trainer_->snapshot();
  if (!is_finite(now)) return;
  safe_ = std::move(now);
  safe_step_ = trainer_->step();
  safe_at_ = since_start_.seconds();
}

std::string TrainRun::kept_checkpoint() const {
  if (!folder_ || saved_step_ < 0) return {};
  return fmt::format("; the checkpoint of step {} is kept in {}", saved_step_,
                     folder_->path().string());
}

// Ends the run if a dynamic scale is below 1, or if every step since the last check was skipped
// with a fixed one.
void TrainRun::check_loss_scale() {
  using Kind = nn::LossScale::Kind;
  const Kind kind = config_.run.loss_scale.kind;
  if (kind == Kind::none) return;
  const int64_t skipped = trainer_->skipped_steps(), step = trainer_->step();
  const int64_t skipped_of_late = skipped - report_.skipped_steps;
  const int64_t made = step - scale_checked_;
  report_.skipped_steps = skipped;
  report_.loss_scale = trainer_->loss_scale();
  scale_checked_ = step;
  if (kind == Kind::dynamic && report_.loss_scale < 1) {
    throw_error(ErrorKind::numeric,
                "gradients overflow {} whatever the loss is scaled by: the scale fell below 1 by "
                "step {} ({} steps skipped); use run.precision bf16 or a smaller initial "
                "weight{}",
                name(config_.run.precision), step, skipped, kept_checkpoint());
  }
  if (kind == Kind::fixed && skipped_of_late > 0 && skipped_of_late == made) {
    throw_error(ErrorKind::numeric,
                "gradients overflow {} in every one of the {} steps up to step {} with "
                "run.loss_scale {}; use a smaller one, or dynamic{}",
                name(config_.run.precision), made, step, config_.run.loss_scale.start,
                kept_checkpoint());
  }
}

// Throws the error of a loss, named by `which`, that was not finite by the time of step `end`. A
// repetition that finds it again is exact about its step and value.
void TrainRun::give_up(std::string_view which, double loss, int64_t end) {
  const Diagnosis found = diagnose(*trainer_, safe_, safe_step_, end);
  const int64_t step = std::min(found.step, end_);
  const int64_t epoch = (step - 1) / trainer_->steps_per_epoch() + 1;
  const bool trains = !found.loss && which != "loss";
  const std::string cause =
      !found.where.empty() ? fmt::format("not finite first in {};", found.where)
      : trains
          ? "the training losses are finite, so that some of its samples may have far larger "
            "values; or"
          : "the reference kernels make it finite from the same weights, so that a kernel of the "
            "plan may be at fault: `ridgeline verify` compares them, --kernels '!NAME' leaves one "
            "out; or";
  throw_error(ErrorKind::numeric,
              "the {} is {} at step {} (epoch {}): {} try a smaller train.optimizer.lr (now {}) or "
              "train.clip_norm{}",
              which, std::isnan(found.loss.value_or(loss)) ? "NaN" : "infinite", step, epoch, cause,
              config_.train.optimizer.lr, kept_checkpoint());
}

// Ends the run if weights or the optimizer's state are not finite: no checkpoint and no model is
// written from them.
void TrainRun::require_finite(const Snapshot& now) {
  const Snapshot::Item* bad = now.first_not_finite();
  if (bad == nullptr) return;
  const int64_t step = trainer_->step();
  throw_error(ErrorKind::numeric,
              "{} has values that are not finite after step {} (epoch {}), though the loss is "
              "finite; neither a checkpoint nor a model is written of it; try a smaller "
              "train.optimizer.lr (now {}) or train.clip_norm{}",
              bad->name, step, (step - 1) / trainer_->steps_per_epoch() + 1,
              config_.train.optimizer.lr, kept_checkpoint());
}

// Weights corrupted by the last step usually show in the loss of the next step, whose diagnosis
// names the layer, so the run makes that step. It ends here if the loss is finite even then, since
// a ReLU may turn NaN into zero and some statistics enter no loss.
bool TrainRun::is_finite(const Snapshot& now) {
  if (now.first_not_finite() == nullptr) {
    ruined_step_ = 0;
    return true;
  }
  if (ruined_step_ > 0 && ruined_step_ < trainer_->step()) require_finite(now);
  if (ruined_step_ == 0) ruined_step_ = trainer_->step();
  return false;
}

void TrainRun::save() {
  last_save_ = since_start_.seconds();
  const Clock clock;
  if (options_.out.empty() || bad_since_ > 0 || saved_step_ == trainer_->step()) return;
  Snapshot now = trainer_->snapshot();
  if (!is_finite(now)) return;  // the last good checkpoint stays
  if (folder_) folder_->save_checkpoint(checkpoint_bytes(*trainer_, now, best_, epoch_));
  saved_step_ = safe_step_ = trainer_->step();
  safe_ = std::move(now);
  safe_at_ = since_start_.seconds();
  report_span("checkpoint", clock);
}

TrainReport TrainRun::finish() {
  if (!evaluated_ && report_.stopped_by == 0 && evaluates()) evaluate(/*scheduled=*/false);
  // The last step may have corrupted the weights, and no later loss would show it: the step that
  // would have followed finds the layer.
  const double loss = report_.validation ? report_.validation->loss : report_.test.loss;
  const bool ended = trainer_->step() == end_ || out_of_patience();
  if (evaluated_ && ended && !std::isfinite(loss)) {
    give_up(report_.validation ? "validation loss" : "test loss", loss, trainer_->step() + 1);
  }
  if (report_.stopped_by == 0 && saved_step_ != trainer_->step()) {
    require_finite(trainer_->snapshot());
  }
  // The result of a finished member of a population is kept elsewhere.
  if (!options_.only_checkpoints || report_.stopped_by != 0) save();
  if (report_.stopped_by == 0 && trainer_->has_validation()) {
    restore_best();
    if (trainer_->has_test()) evaluate_test();
  }
  if (folder_ && report_.stopped_by == 0) {
    write_file_atomic(folder_->model(), model_file_bytes(*trainer_));
  }
  if (report_.stopped_by != 0) {
    progress_.line(fmt::format(
        "stopped after step {}: {}", trainer_->step(),
        folder_ && saved_step_ == trainer_->step()
            ? fmt::format(
                  "saved in {0}, continue it with: ridgeline train --resume {1}",
                  folder_->path().string(),
                  options_.continued_by.empty() ? folder_->path().string() : options_.continued_by)
            : "nothing was saved"));
  }
  gather_times();
  report_.steps = trainer_->step();
  report_.clipped_steps = trainer_->clipped_steps();
  report_.skipped_steps = trainer_->skipped_steps();
  report_.loss_scale = trainer_->loss_scale();
  report_.train_loss = epoch_.mean_loss();
  report_.train_accuracy = epoch_.accuracy();
  if (report_.train_seconds > 0) {
    report_.inputs_per_second = double(samples_here_) / report_.train_seconds;
    report_.flops_per_second = flops_ / report_.train_seconds;
    report_.limit_fraction = limit_seconds_ / report_.train_seconds;
  }
  gather_spans();
  for (const auto& observer : observers_) observer->finished(report_, *trainer_);
  return report_;
}

void TrainRun::ask_observers() {
  for (const auto& observer : observers_) {
    if (ranks_ == nullptr && observer->wants_to_stop()) end_ = trainer_->step();
  }
}

void TrainRun::begin() {
  announce();
  last_save_ = since_start_.seconds();
}

void TrainRun::run_to(int64_t until) {
  const int64_t per_epoch = trainer_->steps_per_epoch();
  while (trainer_->step() < until && !has_ended()) {
    if (trainer_->step() % per_epoch == 0) epoch_ = {};
    advance();
    ask_observers();
    const int64_t step = trainer_->step(), epoch = step / per_epoch;
    const bool last = step == end_;
    const bool scheduled = step % per_epoch == 0 && epoch % config_.train.eval_every == 0;
    if (evaluates() && bad_since_ == 0 && (scheduled || (last && step % per_epoch == 0))) {
      evaluate(scheduled);
      ask_observers();
    }
    const TrainConfig& train = config_.train;
    const double since_save = since_start_.seconds() - last_save_;
    const bool due = train.checkpoint_seconds > 0 && since_save >= train.checkpoint_seconds;
    // All ranks agree here, so that a signal to any of them stops all.
    int64_t signal = options_.signals ? SignalGuard::caught() : 0, save_now = int64_t(due);
    if (signal == 0 && options_.stop) signal = options_.stop();
    if (ranks_ != nullptr) {
      int64_t both[2] = {signal, root() ? save_now : 0};
      ranks_->all_reduce(both, both, 2, DType::int64, Reduce::max, DType::int64);
      signal = both[0];
      save_now = both[1];
    }
    if ((train.checkpoint_steps > 0 && step % train.checkpoint_steps == 0) || save_now != 0) {
      save();
    }
    report_.stopped_by = step == end_ ? 0 : int(signal);
  }
}

double TrainRun::score() {
  if (!trainer_->has_validation()) {
    return epoch_.targets > 0 ? -epoch_.mean_loss() : std::numeric_limits<double>::quiet_NaN();
  }
  if (!evaluated_) evaluate(/*scheduled=*/false);
  const double value = value_of(*report_.validation, config_.train.monitor);
  return larger_is_better(config_.train.monitor) ? value : -value;
}

TrainReport TrainRun::run() {
  std::optional<SignalGuard> signals;
  if (options_.signals) signals.emplace();
  begin();
  run_to(end_);
  return finish();
}

TrainReport train(const Config& config, const TrainOptions& options) {
  return TrainRun(config, options).run();
}

}  // namespace ridgeline::engine
