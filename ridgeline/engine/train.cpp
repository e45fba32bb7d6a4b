#include "ridgeline/engine/train.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "ridgeline/core/file.h"
#include "ridgeline/data/locate.h"
#include "ridgeline/engine/checkpoint.h"
#include "ridgeline/engine/diagnose.h"
#include "ridgeline/engine/metrics.h"
#include "ridgeline/engine/report_page.h"
#include "ridgeline/engine/run_folder.h"
#include "ridgeline/engine/signals.h"
#include "ridgeline/engine/trainer.h"

namespace ridgeline::engine {
namespace {

constexpr int64_t kLogSteps = 128;      // between lines of metrics.jsonl
constexpr double kLaunchSeconds = 0.1;  // signals and the bar wait no longer than this
constexpr double kSafeSeconds = 2;      // between snapshots that a NaN is traced back from

// Mean loss and accuracy over some steps.
struct Tally {
  double loss = 0;
  int64_t correct = 0, rows = 0;

  void add(double step_loss, int64_t step_correct, int64_t step_rows) {
    loss += step_loss * double(step_rows);
    correct += step_correct;
    rows += step_rows;
  }
  double mean_loss() const { return rows > 0 ? loss / double(rows) : 0; }
  double accuracy() const { return rows > 0 ? double(correct) / double(rows) : 0; }
};

// The state of one call of train().
class TrainRun {
 public:
  TrainRun(const Config& config, const TrainOptions& options);
  TrainReport run();

 private:
  void announce();
  int64_t steps_to_make() const;
  void advance();
  void read_results(int64_t before);
  [[noreturn]] void give_up(std::string_view which, int64_t end);
  void log();
  void evaluate();
  void save();
  void show();
  void finish();
  void watch(std::unique_ptr<TrainObserver> observer) { observers_.push_back(std::move(observer)); }
  // Tells the observers about what has just taken `clock`'s seconds.
  void tell(const char* what, const Clock& clock, int64_t steps = 0);

  const Config config_;
  const TrainOptions options_;
  const Clock since_start_;
  Progress progress_;
  std::unique_ptr<RunFolder> folder_;
  std::vector<std::unique_ptr<TrainObserver>> observers_;
  std::unique_ptr<Machine> machine_;
  std::unique_ptr<Trainer> trainer_;
  TrainReport report_;

  int64_t end_ = 0;
  prof::Limit full_limit_, tail_limit_;
  double flops_ = 0, limit_seconds_ = 0;
  double step_seconds_ = 0;  // of late
  int64_t rows_here_ = 0;
  Tally epoch_, since_log_;
  double logged_seconds_ = 0,
         logged_limit_ = 0;  // train_seconds and limit_seconds_ at the last log
  int64_t logged_rows_ = 0;
  bool evaluated_ = false;  // at this step
  double last_save_ = 0;
  int64_t saved_step_ = -1;

  Snapshot safe_;  // the last known good state
  int64_t safe_step_ = 0;
  double safe_at_ = 0;
  int64_t bad_since_ = 0;  // the first of the latest steps whose losses were not finite; 0: none
};

void check_unchanged(const CheckpointInfo& info, const Config& config, const data::DataSet& set,
                     const std::string& origin) {
  const Config kept = parse_config(info.config, origin);
  if (const std::string changed = changed_settings(kept, config); !changed.empty()) {
    throw_error(ErrorKind::usage,
                "--resume: {} is not as in {}: restore it, or begin anew with --force", changed,
                origin);
  }
  if (info.data_hash != set.train.hash) {
    throw_error(ErrorKind::usage,
                "--resume: the training data of {} is not what {} was made with: restore it, or "
                "begin anew with --force",
                config.data.name, origin);
  }
}

TrainRun::TrainRun(const Config& config, const TrainOptions& options)
    : config_(config), options_(options), progress_(options.progress) {
  if (!options.out.empty()) {
    const auto use = options.resume  ? RunFolder::Use::resume
                     : options.force ? RunFolder::Use::force
                                     : RunFolder::Use::fresh;
    folder_ = std::make_unique<RunFolder>(options.out, use);
  } else if (options.resume) {
    throw_error(ErrorKind::usage, "--resume needs --out DIR, the folder of the run to continue");
  }
  auto set = options.set;
  if (!set) set = std::make_shared<data::DataSet>(data::load(config.data.name, options.data));
  std::optional<nn::TensorFile> kept;
  CheckpointInfo info;
  if (options.resume && folder_->has_checkpoint()) {
    kept = folder_->load_checkpoint(
        [&](const nn::TensorFile& file) { info = read_checkpoint_info(file); },
        [&](const std::string& text) { progress_.warning(text); });
    check_unchanged(info, config, *set, kept->origin());
  }
  if (folder_) {
    watch(metrics_observer(*folder_));
    watch(tensorboard_observer(*folder_, options.histograms));
  }
  if (!options.trace.empty()) watch(trace_observer(options.trace));
  if (!options.report.empty()) watch(report_observer(options.report));
  machine_ = std::make_unique<Machine>(config.run);
  trainer_ = std::make_unique<Trainer>(*machine_, config, std::move(set), info.rows);
  if (kept) restore_checkpoint(*kept, *trainer_);
  if (!info.rows.train.empty() && trainer_->runner().row_names() != info.rows.train) {
    progress_.warning(
        "the rows of the checkpoint do not fit this machine: results may differ in "
        "the last bits");
  }
  saved_step_ = kept ? info.step : -1;
  end_ = trainer_->total_steps();
  safe_ = trainer_->snapshot();
  safe_step_ = trainer_->step();
}

void TrainRun::announce() {
  if (folder_) {
    const std::string toml = to_toml(config_);
    write_file_atomic(folder_->config(), std::as_bytes(std::span(toml)));
  }
  trainer_->prepare_evaluation();
  Runner& runner = trainer_->runner();
  report_.ceilings = machine_->ceilings();
  if (report_.ceilings) {
    full_limit_ = prof::limit_of(runner.plan().program(), *report_.ceilings);
    report_.limit = full_limit_;
    if (Runner* tail = trainer_->tail()) {
      tail_limit_ = prof::limit_of(tail->plan().program(), *report_.ceilings);
    }
  }
  report_.device = to_string(machine_->device());
  report_.precision = name(config_.run.precision);
  report_.data = config_.data.name;
  report_.threads = machine_->threads();
  report_.parameters = trainer_->model().parameter_count();
  report_.memory = runner.plan().memory();
  report_.rows = runner.row_names();
  report_.plan_source = runner.explanation().source;
  report_.startup_seconds = since_start_.seconds();
  report_.tuning_seconds = trainer_->tuning_seconds();
  const data::DataSet& set = trainer_->set();
  progress_.line(fmt::format(
      "{}: {} images to train on, {} to test on; {} weights; {}, {} thread{}, {}",
      config_.data.name, set.train.size(), set.test.size(), report_.parameters, report_.device,
      report_.threads, report_.threads == 1 ? "" : "s", report_.precision));
  progress_.line(fmt::format(
      "plan of {} rows ({}); memory {}B (live at once {}B, without reuse {}B); ready in {} (tuning "
      "{})",
      report_.rows.size(), report_.plan_source, engineering(double(report_.memory.arena)),
      engineering(double(report_.memory.peak_live)), engineering(double(report_.memory.sum)),
      duration(report_.startup_seconds), duration(report_.tuning_seconds)));
  if (trainer_->step() > 0)
    progress_.line(fmt::format("continuing after step {}", trainer_->step()));
  for (const auto& observer : observers_) observer->started(report_, *trainer_);
  tell("start-up", since_start_);
}

void TrainRun::tell(const char* what, const Clock& clock, int64_t steps) {
  const double seconds = clock.seconds();
  const HostSpan span{what, since_start_.seconds() - seconds, seconds, steps};
  for (const auto& observer : observers_) observer->did(span);
}

// Up to the next boundary where the host has something to do.
int64_t TrainRun::steps_to_make() const {
  const int64_t step = trainer_->step();
  int64_t most = end_ - step;
  most = std::min(most, kLogSteps - trainer_->batches().at_step(step).batch % kLogSteps);
  const int64_t every = folder_ ? config_.train.checkpoint_steps : 0;
  if (every > 0) most = std::min(most, every - step % every);
  // The first launch is a single step: how long one takes is not known yet.
  const double fit = step_seconds_ > 0 ? kLaunchSeconds / step_seconds_ : 1;
  return std::max<int64_t>(1, fit < double(most) ? int64_t(fit) : most);
}

void TrainRun::advance() {
  const int64_t before = trainer_->step();
  const Clock clock;
  const int64_t made = trainer_->advance(steps_to_make());
  const int64_t after = trainer_->step();
  const bool epoch_end = after % trainer_->steps_per_epoch() == 0;
  const bool log_point =
      epoch_end || after == end_ || after % trainer_->steps_per_epoch() % kLogSteps == 0;
  // On the host the results are at hand; on a GPU reading them would wait for it.
  if (log_point || machine_->device().kind == DeviceKind::cpu || step_seconds_ == 0) {
    read_results(before);
  }
  const double seconds = clock.seconds();
  tell("launch", clock, made);
  report_.train_seconds += seconds;
  report_.steps_here += made;
  step_seconds_ = seconds / double(made);
  rows_here_ += made * trainer_->last_batch();
  const bool full = trainer_->last_batch() == trainer_->batches().full_size();
  Runner& runner = full ? trainer_->runner() : *trainer_->tail();
  flops_ += double(made) * runner.plan().program().flops();
  limit_seconds_ += double(made) * (full ? full_limit_ : tail_limit_).seconds();
  evaluated_ = false;
  if (bad_since_ > 0 && (after > bad_since_ || after == end_)) give_up("loss", after);
  if (progress_.due()) show();
  if (log_point && bad_since_ == 0) log();
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
    epoch_.add(losses[i], corrects.empty() ? 0 : corrects[i], trainer_->last_batch());
    since_log_.add(losses[i], corrects.empty() ? 0 : corrects[i], trainer_->last_batch());
  }
}

// `which` loss it was, seen by the time of step `end`.
void TrainRun::give_up(std::string_view which, int64_t end) {
  const Diagnosis found = diagnose(*trainer_, safe_, safe_step_, end);
  const int64_t step = std::min(found.step, end_);
  const int64_t epoch = (step - 1) / trainer_->steps_per_epoch() + 1;
  std::string kept;
  if (folder_ && saved_step_ >= 0) {
    kept = fmt::format("; the checkpoint of step {} is kept in {}", saved_step_,
                       folder_->path().string());
  }
  throw_error(ErrorKind::numeric,
              "the {} is {} at step {} (epoch {}): not finite first in {}; try a smaller "
              "train.optimizer.lr (now {}) or train.clip_norm{}",
              which, std::isnan(found.loss) ? "NaN" : "infinite", step, epoch, found.where,
              config_.train.optimizer.lr, kept);
}

void TrainRun::log() {
  if (since_log_.rows > 0 && !observers_.empty()) {
    TrainPoint point;
    point.step = trainer_->step();
    point.epoch = double(point.step) / double(trainer_->steps_per_epoch());
    point.loss = since_log_.mean_loss();
    point.accuracy = since_log_.accuracy();
    point.lr = trainer_->lr(point.step - 1);
    point.gradient_norm = trainer_->gradient_norm();
    const double seconds = report_.train_seconds - logged_seconds_;
    point.inputs_per_second = double(rows_here_ - logged_rows_) / seconds;
    if (report_.limit) point.limit_fraction = (limit_seconds_ - logged_limit_) / seconds;
    point.seconds = since_start_.seconds();
    for (const auto& observer : observers_) observer->logged(point);
  }
  logged_seconds_ = report_.train_seconds;
  logged_limit_ = limit_seconds_;
  logged_rows_ = rows_here_;
  since_log_ = {};
  if (since_start_.seconds() - safe_at_ < kSafeSeconds) return;
  Snapshot now = trainer_->snapshot();
  if (!now.finite()) return;
  safe_ = std::move(now);
  safe_step_ = trainer_->step();
  safe_at_ = since_start_.seconds();
}

void TrainRun::show() {
  const int64_t step = trainer_->step(), per_epoch = trainer_->steps_per_epoch();
  Progress::State state;
  state.epoch = std::min((step - 1) / per_epoch + 1, config_.train.epochs);
  state.epochs = config_.train.epochs;
  state.step = step;
  state.steps = end_;
  state.loss = epoch_.mean_loss();
  state.accuracy = epoch_.rows > 0 ? epoch_.accuracy() : -1;
  state.inputs_per_second = double(rows_here_) / report_.train_seconds;
  state.seconds_left = double(end_ - step) * report_.seconds_per_step();
  progress_.update(state);
}

void TrainRun::evaluate() {
  const Clock clock;
  report_.test = trainer_->evaluate();
  evaluated_ = true;
  report_.test_seconds += clock.seconds();
  const int64_t step = trainer_->step(), per_epoch = trainer_->steps_per_epoch();
  std::string text = fmt::format("epoch {}/{}  step {}", (step + per_epoch - 1) / per_epoch,
                                 config_.train.epochs, step);
  if (epoch_.rows > 0) {
    text += fmt::format("  train loss {:.4f} accuracy {:.2f} %", epoch_.mean_loss(),
                        100 * epoch_.accuracy());
  }
  text += fmt::format("  test loss {:.4f} accuracy {:.2f} %", report_.test.loss,
                      100 * report_.test.accuracy);
  if (rows_here_ > 0) {
    text += fmt::format("  {} inputs/s", grouped(double(rows_here_) / report_.train_seconds));
  }
  progress_.line(text);
  tell("evaluate", clock);
  const EvalPoint point{step, double(step) / double(per_epoch), report_.test.loss,
                        report_.test.accuracy, since_start_.seconds()};
  for (const auto& observer : observers_) observer->evaluated(point, *trainer_);
}

void TrainRun::save() {
  last_save_ = since_start_.seconds();
  const Clock clock;
  if (!folder_ || bad_since_ > 0 || saved_step_ == trainer_->step()) return;
  Snapshot now = trainer_->snapshot();
  // Ruined weights show in the next loss; the last good checkpoint stays.
  if (!now.finite()) return;
  folder_->save_checkpoint(checkpoint_bytes(*trainer_, now));
  saved_step_ = safe_step_ = trainer_->step();
  safe_ = std::move(now);
  safe_at_ = since_start_.seconds();
  tell("checkpoint", clock);
}

void TrainRun::finish() {
  if (!evaluated_ && report_.stopped_by == 0) evaluate();
  // The last step may have ruined the weights, and no step follows to show it in its loss: the one
  // that would have followed shows where.
  if (evaluated_ && trainer_->step() == end_ && !std::isfinite(report_.test.loss)) {
    give_up("test loss", end_ + 1);
  }
  save();
  if (folder_ && report_.stopped_by == 0) {
    write_file_atomic(folder_->model(), model_file_bytes(*trainer_));
  }
  if (report_.stopped_by != 0) {
    progress_.line(fmt::format(
        "stopped after step {}: {}", trainer_->step(),
        folder_ && saved_step_ == trainer_->step()
            ? fmt::format("saved in {}, continue it with --resume", folder_->path().string())
            : "nothing was saved"));
  }
  report_.steps = trainer_->step();
  report_.clipped_steps = trainer_->clipped_steps();
  report_.train_loss = epoch_.mean_loss();
  report_.train_accuracy = epoch_.accuracy();
  if (report_.train_seconds > 0) {
    report_.inputs_per_second = double(rows_here_) / report_.train_seconds;
    report_.flops_per_second = flops_ / report_.train_seconds;
    report_.limit_fraction = limit_seconds_ / report_.train_seconds;
  }
  for (const auto& observer : observers_) observer->finished(report_, *trainer_);
}

TrainReport TrainRun::run() {
  const SignalGuard signals;
  announce();
  last_save_ = since_start_.seconds();
  const int64_t per_epoch = trainer_->steps_per_epoch();
  while (trainer_->step() < end_ && report_.stopped_by == 0) {
    if (trainer_->step() % per_epoch == 0) epoch_ = {};
    advance();
    const int64_t step = trainer_->step(), epoch = step / per_epoch;
    const bool last = step == end_;
    if (step % per_epoch == 0 && bad_since_ == 0 &&
        (last || (config_.train.eval_every > 0 && epoch % config_.train.eval_every == 0))) {
      evaluate();
    }
    const TrainConfig& train = config_.train;
    const double since_save = since_start_.seconds() - last_save_;
    if ((train.checkpoint_steps > 0 && step % train.checkpoint_steps == 0) ||
        (train.checkpoint_seconds > 0 && since_save >= train.checkpoint_seconds)) {
      save();
    }
    report_.stopped_by = last ? 0 : SignalGuard::caught();
  }
  finish();
  return report_;
}

}  // namespace

TrainReport train(const Config& config, const TrainOptions& options) {
  return TrainRun(config, options).run();
}

}  // namespace ridgeline::engine
