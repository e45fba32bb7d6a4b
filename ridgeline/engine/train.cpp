#include "ridgeline/engine/train.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "ridgeline/core/file.h"
#include "ridgeline/core/text.h"
#include "ridgeline/engine/checkpoint.h"
#include "ridgeline/engine/diagnose.h"
#include "ridgeline/engine/load_data.h"
#include "ridgeline/engine/metrics.h"
#include "ridgeline/engine/ranks.h"
#include "ridgeline/engine/report_page.h"
#include "ridgeline/engine/run_folder.h"
#include "ridgeline/engine/signals.h"
#include "ridgeline/engine/trainer.h"

namespace ridgeline::engine {
namespace {

constexpr int64_t kLogSteps = 128;      // between lines of metrics.jsonl
constexpr double kLaunchSeconds = 0.1;  // signals and the bar wait no longer than this
constexpr size_t kMostSpans = 20'000;   // of a rank's timeline
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
  void check_loss_scale();
  std::string kept_checkpoint() const;
  void log();
  void evaluate();
  void save();
  void show();
  void finish();
  void watch(std::unique_ptr<TrainObserver> observer) { observers_.push_back(std::move(observer)); }
  // Tells the observers about what has just taken `clock`'s seconds.
  void tell(const char* what, const Clock& clock, int64_t steps = 0);
  CheckpointInfo share_info(CheckpointInfo info);
  void gather_times();
  void gather_spans();
  void measure_network();

  // What only the root can know, or has to decide, on every rank.
  bool root() const { return ranks_ == nullptr || ranks_->is_root(); }
  template <typename T>
  T agreed(T value) const {
    return ranks_ != nullptr ? ranks_->from_root(value) : value;
  }

  const Config config_;
  const TrainOptions options_;
  Communicator* const ranks_;  // null: alone
  const Clock since_start_;
  Progress progress_;
  std::unique_ptr<RunFolder> folder_;
  std::vector<std::unique_ptr<TrainObserver>> observers_;
  std::vector<HostSpan> spans_;  // of a rank that is not the root
  double blocked_before_ = 0;
  std::unique_ptr<Machine> machine_;
  std::unique_ptr<Trainer> trainer_;
  TrainReport report_;

  int64_t end_ = 0;
  prof::Limit full_limit_, tail_limit_;
  double flops_ = 0, limit_seconds_ = 0, blocked_seconds_ = 0;
  double step_seconds_ = 0;  // of late
  int64_t rows_here_ = 0;
  Tally epoch_, since_log_;
  double logged_seconds_ = 0,
         logged_limit_ = 0;  // train_seconds and limit_seconds_ at the last log
  int64_t logged_rows_ = 0;
  bool evaluated_ = false;     // at this step
  int64_t scale_checked_ = 0;  // the step of the last look at the loss scale
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
    : config_(config),
      options_(options),
      ranks_(options.ranks != nullptr && options.ranks->size() > 1 ? options.ranks : nullptr),
      progress_(root() ? options.progress : Progress::Style::none) {
  if (!options.out.empty() && root()) {
    const auto use = options.resume  ? RunFolder::Use::resume
                     : options.force ? RunFolder::Use::force
                                     : RunFolder::Use::fresh;
    folder_ = std::make_unique<RunFolder>(options.out, use);
  } else if (options.resume && options.out.empty()) {
    throw_error(ErrorKind::usage, "--resume needs --out DIR, the folder of the run to continue");
  }
  auto set = options.set;
  if (!set) set = std::make_shared<data::DataSet>(load_data(config, options.data));
  if (ranks_ != nullptr) check_alike(*ranks_, config, *set);
  std::optional<nn::TensorFile> kept;
  CheckpointInfo info;
  if (options.resume && folder_ && folder_->has_checkpoint()) {
    kept = folder_->load_checkpoint(
        [&](const nn::TensorFile& file) { info = read_checkpoint_info(file); },
        [&](const std::string& text) { progress_.warning(text); });
    check_unchanged(info, config, *set, kept->origin());
  }
  info = share_info(std::move(info));
  if (folder_) {
    watch(metrics_observer(*folder_));
    watch(tensorboard_observer(*folder_, options.histograms));
  }
  const bool root = ranks_ == nullptr || ranks_->is_root();
  if (root && !options.trace.empty()) watch(trace_observer(options.trace));
  if (root && !options.report.empty()) {
    watch(report_observer(options.report, folder_ ? folder_->metrics() : ""));
  }
  machine_ = std::make_unique<Machine>(config.run, ranks_);
  trainer_ = std::make_unique<Trainer>(*machine_, config, std::move(set), info.rows);
  if (kept) restore_checkpoint(*kept, *trainer_);
  const bool resumed = agreed(int32_t(kept.has_value())) != 0;
  if (ranks_ != nullptr && resumed) {
    Snapshot state = trainer_->snapshot();
    share_snapshot(*ranks_, state);
    trainer_->restore(state, info.step);
  }
  if (resumed && info.ranks != trainer_->ranks()) {
    progress_.warning(
        fmt::format("the checkpoint was made by {} rank{}, this run has {}: results may differ in "
                    "the last bits",
                    info.ranks, info.ranks == 1 ? "" : "s", trainer_->ranks()));
  } else if (!info.rows.train.empty() && trainer_->runner().row_names() != info.rows.train) {
    progress_.warning(
        "the rows of the checkpoint do not fit this machine: results may differ in "
        "the last bits");
  }
  saved_step_ = resumed ? info.step : -1;
  end_ = trainer_->total_steps();
  safe_ = trainer_->snapshot();
  safe_step_ = scale_checked_ = trainer_->step();
  report_.skipped_steps = trainer_->skipped_steps();
  report_.loss_scale = trainer_->loss_scale();
}

// The root's, which alone may see the folder of the run.
CheckpointInfo TrainRun::share_info(CheckpointInfo info) {
  if (ranks_ == nullptr) return info;
  info.step = agreed(info.step);
  info.ranks = agreed(info.ranks);
  for (auto* rows : {&info.rows.train, &info.rows.tail, &info.rows.evaluate}) {
    std::string text;
    for (const std::string& row : *rows) text += row + "\n";
    std::istringstream lines(ranks_->text_from_root(text));
    rows->clear();
    for (std::string row; std::getline(lines, row);) rows->push_back(row);
  }
  return info;
}

void TrainRun::announce() {
  if (folder_) {
    const std::string toml = to_toml(config_);
    write_file_atomic(folder_->config(), std::as_bytes(std::span(toml)));
  }
  trainer_->prepare_evaluation();
  if (ranks_ != nullptr) check_replicas(*ranks_, safe_, trainer_->step());
  Runner& runner = trainer_->runner();
  if (root()) report_.ceilings = machine_->ceilings();
  if (report_.ceilings) {
    full_limit_ = prof::limit_of(runner.plan().program(), *report_.ceilings);
    report_.limit = full_limit_;
    if (Runner* tail = trainer_->tail()) {
      tail_limit_ = prof::limit_of(tail->plan().program(), *report_.ceilings);
    }
  }
  report_.ranks = trainer_->ranks();
  if (ranks_ != nullptr) measure_network();
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
  const char* item = set.train.streams > 0 ? "character" : config_.data.text ? "text" : "image";
  // Of labelled texts the file is named: it may be a part of the published one.
  const std::string& data_name = config_.data.text ? set.train.name : config_.data.name;
  progress_.line(
      fmt::format("{}: {} to train on, {} to test on; {}; {}{}, {}, {}", data_name,
                  counted(set.train.size() * set.train.targets(), item),
                  set.test.size() * set.test.targets(), counted(report_.parameters, "weight"),
                  ranks_ != nullptr ? fmt::format("{} ranks, each ", report_.ranks) : "",
                  report_.device, counted(report_.threads, "thread"), report_.precision));
  progress_.line(fmt::format(
      "plan of {} ({}); memory {}B (live at once {}B, without reuse {}B); ready in {} (tuning "
      "{})",
      counted(int64_t(report_.rows.size()), "row"), report_.plan_source,
      engineering(double(report_.memory.arena)), engineering(double(report_.memory.peak_live)),
      engineering(double(report_.memory.sum)), duration(report_.startup_seconds),
      duration(report_.tuning_seconds)));
  if (trainer_->step() > 0) {
    progress_.line(fmt::format("continuing after step {}{}", trainer_->step(),
                               trainer_->step() < end_ ? "" : ": there is nothing left to train"));
  }
  for (const auto& observer : observers_) observer->started(report_, *trainer_);
  tell("start-up", since_start_);
}

void TrainRun::tell(const char* what, const Clock& clock, int64_t steps) {
  const double seconds = clock.seconds();
  const double blocked = ranks_ != nullptr ? ranks_->blocked_seconds() : 0;
  const HostSpan span{what,
                      since_start_.seconds() - seconds,
                      seconds,
                      steps,
                      blocked - std::exchange(blocked_before_, blocked),
                      0};
  for (const auto& observer : observers_) observer->did(span);
  const bool wanted = !options_.trace.empty() || !options_.report.empty();
  if (!root() && wanted && spans_.size() < kMostSpans) spans_.push_back(span);
}

// What the other ranks did, for the root's observers.
void TrainRun::gather_spans() {
  const bool wanted = !options_.trace.empty() || !options_.report.empty();
  if (ranks_ == nullptr || !agreed(wanted)) return;
  nlohmann::json mine = nlohmann::json::array();
  for (const HostSpan& span : spans_) {
    mine.push_back({span.what, span.begin, span.seconds, span.steps, span.waited});
  }
  const std::vector<std::string> all = ranks_->texts(mine.dump());
  for (size_t rank = 1; root() && rank < all.size(); ++rank) {
    for (const auto& each : nlohmann::json::parse(all[rank])) {
      const HostSpan span{each[0], each[1], each[2], each[3], each[4], int(rank)};
      for (const auto& observer : observers_) observer->did(span);
    }
  }
}

// Up to the next boundary where the host has something to do.
int64_t TrainRun::steps_to_make() const {
  const int64_t step = trainer_->step();
  int64_t most = end_ - step;
  most = std::min(most, kLogSteps - trainer_->batches().at_step(step).batch % kLogSteps);
  const int64_t every = options_.out.empty() ? 0 : config_.train.checkpoint_steps;
  if (every > 0) most = std::min(most, every - step % every);
  // The first launch is a single step: how long one takes is not known yet.
  const double fit = step_seconds_ > 0 ? kLaunchSeconds / step_seconds_ : 1;
  return std::max<int64_t>(1, fit < double(most) ? int64_t(fit) : most);
}

void TrainRun::advance() {
  const int64_t before = trainer_->step();
  const Clock clock;
  const int64_t made = trainer_->advance(agreed(steps_to_make()));
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
  blocked_seconds_ += trainer_->blocked_seconds();
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
  if (log_point) check_loss_scale();
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
    const int64_t targets = trainer_->last_batch() * trainer_->set().train.targets();
    epoch_.add(losses[i], corrects.empty() ? 0 : corrects[i], targets);
    since_log_.add(losses[i], corrects.empty() ? 0 : corrects[i], targets);
  }
}

std::string TrainRun::kept_checkpoint() const {
  if (!folder_ || saved_step_ < 0) return {};
  return fmt::format("; the checkpoint of step {} is kept in {}", saved_step_,
                     folder_->path().string());
}

// A dynamic scale below 1, or a fixed one that no step since the last look got through with.
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

// `which` loss it was, seen by the time of step `end`.
void TrainRun::give_up(std::string_view which, int64_t end) {
  const Diagnosis found = diagnose(*trainer_, safe_, safe_step_, end);
  const int64_t step = std::min(found.step, end_);
  const int64_t epoch = (step - 1) / trainer_->steps_per_epoch() + 1;
  throw_error(ErrorKind::numeric,
              "the {} is {} at step {} (epoch {}): not finite first in {}; try a smaller "
              "train.optimizer.lr (now {}) or train.clip_norm{}",
              which, std::isnan(found.loss) ? "NaN" : "infinite", step, epoch, found.where,
              config_.train.optimizer.lr, kept_checkpoint());
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
    if (report_.loss_scale > 0) {
      point.loss_scale = report_.loss_scale;
      point.skipped_steps = report_.skipped_steps;
    }
    point.seconds = since_start_.seconds();
    for (const auto& observer : observers_) observer->logged(point);
  }
  logged_seconds_ = report_.train_seconds;
  logged_limit_ = limit_seconds_;
  logged_rows_ = rows_here_;
  since_log_ = {};
  if (agreed(int32_t(since_start_.seconds() - safe_at_ < kSafeSeconds)) != 0) return;
  Snapshot now = trainer_->snapshot();
  if (!now.finite()) return;
  safe_ = std::move(now);
  safe_step_ = trainer_->step();
  safe_at_ = since_start_.seconds();
}

void TrainRun::show() {
  const int64_t step = trainer_->step(), per_epoch = trainer_->steps_per_epoch();
  Progress::State state;
  state.epoch = (step - 1) / per_epoch + 1;
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
  if (ranks_ != nullptr) check_replicas(*ranks_, trainer_->snapshot(), trainer_->step());
  report_.test_seconds += clock.seconds();
  const int64_t step = trainer_->step(), per_epoch = trainer_->steps_per_epoch();
  const int64_t epoch = (step + per_epoch - 1) / per_epoch;
  // A run may be resumed with fewer epochs than it has made.
  std::string text =
      fmt::format("epoch {}/{}  step {}", epoch, std::max(epoch, config_.train.epochs), step);
  if (epoch_.rows > 0) {
    text += fmt::format("  train loss {:.4f} accuracy {:.2f} %", epoch_.mean_loss(),
                        100 * epoch_.accuracy());
  }
  text += fmt::format("  test loss {:.4f} accuracy {:.2f} %", report_.test.loss,
                      100 * report_.test.accuracy);
  const bool language = trainer_->set().train.streams > 0;
  if (language) text += fmt::format("  perplexity {:.3f}", std::exp(report_.test.loss));
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
  if (options_.out.empty() || bad_since_ > 0 || saved_step_ == trainer_->step()) return;
  Snapshot now = trainer_->snapshot();
  // Ruined weights show in the next loss; the last good checkpoint stays.
  if (!now.finite()) return;
  if (folder_) folder_->save_checkpoint(checkpoint_bytes(*trainer_, now));
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
  gather_times();
  report_.steps = trainer_->step();
  report_.clipped_steps = trainer_->clipped_steps();
  report_.skipped_steps = trainer_->skipped_steps();
  report_.loss_scale = trainer_->loss_scale();
  report_.train_loss = epoch_.mean_loss();
  report_.train_accuracy = epoch_.accuracy();
  if (report_.train_seconds > 0) {
    report_.inputs_per_second = double(rows_here_) / report_.train_seconds;
    report_.flops_per_second = flops_ / report_.train_seconds;
    report_.limit_fraction = limit_seconds_ / report_.train_seconds;
  }
  gather_spans();
  for (const auto& observer : observers_) observer->finished(report_, *trainer_);
}

void TrainRun::measure_network() {
  report_.network =
      prof::network_of(*ranks_, cache_folder() / fmt::format("network-{}.json", report_.ranks));
  const double narrow = config_.run.reduce == DType::bf16 ? 0.5 : 1;
  for (const Op& op : trainer_->runner().plan().program().ops) {
    if (const auto* start = std::get_if<AllReduceStart>(&op)) {
      report_.network_bytes += start->network_bytes();
      report_.network_seconds +=
          prof::all_reduce_seconds(narrow * size_of(start->grads), report_.ranks, report_.network);
    }
  }
}

void TrainRun::gather_times() {
  std::vector<double> mine{report_.train_seconds, blocked_seconds_}, all(2 * size_t(report_.ranks));
  if (ranks_ != nullptr) {
    ranks_->all_gather(mine.data(), all.data(), mine.size() * sizeof(double));
  } else {
    all = mine;
  }
  for (size_t r = 0; r < all.size(); r += 2) {
    report_.rank_seconds.push_back(all[r]);
    report_.rank_blocked_seconds.push_back(all[r + 1]);
  }
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
    const bool due = train.checkpoint_seconds > 0 && since_save >= train.checkpoint_seconds;
    // One word over all ranks: a signal to any of them is one to all.
    int64_t signal = SignalGuard::caught(), save_now = int64_t(due);
    if (ranks_ != nullptr) {
      int64_t word[2] = {signal, root() ? save_now : 0};
      ranks_->all_reduce(word, word, 2, DType::int64, Reduce::max, DType::int64);
      signal = word[0];
      save_now = word[1];
    }
    if ((train.checkpoint_steps > 0 && step % train.checkpoint_steps == 0) || save_now != 0) {
      save();
    }
    report_.stopped_by = last ? 0 : int(signal);
  }
  finish();
  return report_;
}

}  // namespace

TrainReport train(const Config& config, const TrainOptions& options) {
  return TrainRun(config, options).run();
}

}  // namespace ridgeline::engine
