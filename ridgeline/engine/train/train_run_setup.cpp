#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "ridgeline/core/text.h"
#include "ridgeline/engine/config_difference.h"
#include "ridgeline/engine/load_data.h"
#include "ridgeline/engine/ranks.h"
#include "ridgeline/engine/train/fine_tune.h"
#include "ridgeline/engine/train/metrics.h"
#include "ridgeline/engine/train/train_run.h"
#include "ridgeline/engine/user_data.h"

namespace ridgeline::engine {
namespace {

// Returns about the number of steps of a run; exactly if no samples are left over.
int64_t expected_steps(const TrainConfig& train, int64_t samples) {
  const int64_t all = train.epochs * std::max<int64_t>(1, samples / train.batch);
  return train.max_steps > 0 ? std::min(all, train.max_steps) : all;
}

// Returns whether the schedule has changed: a cosine without its own length ends with the run.
bool schedule_changed(const Config& kept, const Config& now) {
  const nn::Schedule& schedule = now.train.schedule;
  return schedule.kind == nn::ScheduleKind::cosine && schedule.total.count == 0 &&
         (kept.train.epochs != now.train.epochs || kept.train.max_steps != now.train.max_steps);
}

void check_unchanged(const CheckpointInfo& info, const Config& config, const data::DataSet& set,
                     const std::string& origin) {
  if (const std::string changed = changed_settings(info.config, config); !changed.empty()) {
    throw_error(ErrorKind::usage,
                "--resume: not as in {}: {}; restore this, or begin anew with --force", origin,
                changed);
  }
  if (info.data_hash != set.train.hash) {
    throw_error(ErrorKind::usage,
                "--resume: the training data of {} is not what {} was made with: restore it, or "
                "begin anew with --force",
                config.data.name, origin);
  }
}

// Returns the settings that differ in a continued run, each with both values. Those that must not
// change have been refused before.
std::vector<std::string> changes_made(const Config& kept, const Config& now) {
  std::vector<std::string> lines;
  for (const Difference& each : differences(to_toml(kept), to_toml(now))) {
    const auto text = [](const std::string& value) { return value.empty() ? "nothing" : value; };
    lines.push_back(fmt::format("continuing with {} = {}, which was {}", each.key, text(each.right),
                                text(each.left)));
  }
  return lines;
}

}  // namespace

TrainRun::TrainRun(const Config& given, const TrainOptions& options)
    : config_(given),
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
  if (!set) set = std::make_shared<data::DataSet>(load_data(given, options.data, true));
  config_ = settled(given, *set);
  if (config_.train.batch < given.train.batch) {
    progress_.line(
        fmt::format("batch of {}, because there are fewer training samples than the "
                    "default of {}",
                    config_.train.batch, given.train.batch));
  }
  const Config& config = config_;
  if (ranks_ != nullptr) check_alike(*ranks_, config, *set);
  std::optional<nn::TensorFile> kept;
  CheckpointInfo info;
  const auto check = [&](const nn::TensorFile& file) { info = read_checkpoint_info(file); };
  const auto warn = [&](const std::string& text) { progress_.warning(text); };
  if (options.resume && folder_ && folder_->has_checkpoint()) {
    kept = folder_->load_checkpoint(check, warn);
    check_unchanged(info, config, *set, kept->origin());
    for (const std::string& line : changes_made(info.config, config)) progress_.line(line);
    if (schedule_changed(info.config, config)) {
      progress_.warning(
          "the cosine of train.schedule ends with the run, which has another length now: rates "
          "differ from those planned before; give the schedule steps or epochs to keep them");
    }
  }
  info = share_info(std::move(info));
  if (folder_ && !options.only_checkpoints) {
    watch(metrics_observer(*folder_));
    watch(tensorboard_observer(*folder_, options.histograms));
  }
  const bool root = ranks_ == nullptr || ranks_->is_root();
  if (root && !options.trace.empty()) watch(trace_observer(options.trace));
  if (agreed(int32_t(!options.report.empty())) != 0) {  // its profile needs all ranks
    watch(root ? report_observer(options.report, folder_ ? folder_->metrics() : "")
               : report_helper());
  }
  if (options.observer) watch(options.observer);
  RunConfig run = config.run;
  run.quiet = options.progress == Progress::Style::none;
  const bool known = info.kernels.train.empty() && !options.kernels.train.empty();
  if (known) run.tune = false;
  machine_ = std::make_unique<Machine>(run, ranks_);
  machine_->expect_steps(expected_steps(config.train, set->train.size()));
  trainer_ =
      std::make_unique<Trainer>(*machine_, config, set, known ? options.kernels : info.kernels);
  check_monitor();
  if (!options.init.empty()) {
    for (const std::string& line : start_from(options.init, *trainer_)) progress_.line(line);
  }
  if (options.initial != nullptr) trainer_->start_from(*options.initial);
  if (kept) {
    try {
      restore_checkpoint(*kept, *trainer_);
    } catch (const Error& error) {
      // Without checksums some damage to the optimizer's state is found only here.
      if (kept->has_checksums() || error.kind() != ErrorKind::model) throw;
      kept = folder_->load_previous(error.what(), check, warn);
      check_unchanged(info, config, *set, kept->origin());
      restore_checkpoint(*kept, *trainer_);
    }
  }
  info.step = agreed(trainer_->step());
  const bool resumed = agreed(int32_t(kept.has_value())) != 0;
  best_.step = agreed(info.best.step);
  best_.value = agreed(info.best.value);
  best_.waited = agreed(info.best.waited);
  if (config.train.keep_best && best_.step >= 0) {
    best_.weights = kept ? read_best_weights(*kept, *trainer_) : trainer_->model_snapshot();
    if (ranks_ != nullptr) share_snapshot(*ranks_, best_.weights);
  }
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
  } else if (!info.kernels.train.empty() &&
             trainer_->runner().kernel_names() != info.kernels.train) {
    progress_.warning(
        "the kernels of the checkpoint do not fit this machine: results may differ in "
        "the last bits");
  }
  epoch_ = info.epoch;
  saved_step_ = resumed ? info.step : -1;
  end_ = trainer_->total_steps();
  safe_ = trainer_->snapshot();
  safe_step_ = scale_checked_ = trainer_->step();
  report_.skipped_steps = trainer_->skipped_steps();
  report_.loss_scale = trainer_->loss_scale();
}

// Returns the root's info on every rank, because only the root may see the folder of the run.
CheckpointInfo TrainRun::share_info(CheckpointInfo info) {
  if (ranks_ == nullptr) return info;
  info.step = agreed(info.step);
  info.ranks = agreed(info.ranks);
  info.epoch = agreed(info.epoch);
  KernelNames& names = info.kernels;
  info.best.step = agreed(info.best.step);
  info.best.value = agreed(info.best.value);
  info.best.waited = agreed(info.best.waited);
  for (auto* kernels : {&names.train, &names.tail, &names.evaluate, &names.evaluate_tail,
                        &names.validate, &names.validate_tail}) {
    std::string text;
    for (const std::string& kernel : *kernels) text += kernel + "\n";
    std::istringstream lines(ranks_->text_from_root(text));
    kernels->clear();
    for (std::string kernel; std::getline(lines, kernel);) kernels->push_back(kernel);
  }
  return info;
}

void TrainRun::announce() {
  trainer_->prepare_evaluation();
  if (ranks_ != nullptr) check_replicas(*ranks_, safe_, trainer_->step());
  Runner& runner = trainer_->runner();
  if (options_.ceilings) report_.ceilings = options_.ceilings;
  if (root() && !report_.ceilings && options_.any_ceilings)
    report_.ceilings = machine_->kept_ceilings();
  if (root() && !report_.ceilings) report_.ceilings = machine_->ceilings();
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
  report_.texts = config_.data.text.has_value();
  report_.user_data = config_.data.user.has_value();
  report_.threads = machine_->threads();
  report_.parameters = trainer_->model().parameter_count();
  report_.memory = runner.plan().memory();
  report_.kernels = trainer_->kernels();
  report_.plan_source = runner.explanation().source;
  report_.startup_seconds = since_start_.seconds();
  report_.tuning_seconds = trainer_->tuning_seconds();
  const data::DataSet& set = trainer_->set();
  const char* sample = set.train.streams > 0 ? "character"
                       : config_.data.text   ? "text"
                       : config_.data.user   ? "sample"
                                             : "image";
  // Labelled texts are named by their file, which may be a part of the published one.
  const std::string& data_name = config_.data.text ? set.train.name : config_.data.name;
  progress_.line(
      fmt::format("{}: {} to train on, {}{} to test on; {}; {}{}, {}, {}", data_name,
                  counted(set.train.size() * set.train.targets_per_sample(), sample),
                  set.validation ? fmt::format("{} to validate on, ", set.validation->size()) : "",
                  set.has_test() ? set.test.size() * set.test.targets_per_sample() : 0,
                  counted(report_.parameters, "weight"),
                  ranks_ != nullptr ? fmt::format("{} ranks, each ", report_.ranks) : "",
                  report_.device, counted(report_.threads, "thread"), report_.precision));
  if (set.preparation && !set.preparation->left_out().empty()) {
    progress_.line(fmt::format("left out, being texts or sequences: {}",
                               fmt::join(set.preparation->left_out(), ", ")));
  }
  if (set.without_target > 0) {
    progress_.line(
        fmt::format("left out, having no target: {}", counted(set.without_target, "sample")));
  }
  progress_.line(fmt::format(
      "plan of {} ({}); memory {}B (live at once {}B, without reuse {}B); ready in {} (tuning "
      "{})",
      counted(int64_t(report_.kernels.train.size()), "kernel"), report_.plan_source,
      engineering(double(report_.memory.arena)), engineering(double(report_.memory.peak_live)),
      engineering(double(report_.memory.sum)), duration(report_.startup_seconds),
      duration(report_.tuning_seconds)));
  if (const int64_t warmup = config_.train.schedule.warmup_steps; end_ > 0 && warmup >= end_) {
    progress_.warning(fmt::format("the run's {} end within the warm-up of {}",
                                  counted(end_, "step"), counted(warmup, "step")));
  }
  if (trainer_->step() > 0) {
    progress_.line(fmt::format(
        "continuing after step {}{}", trainer_->step(),
        trainer_->step() < end_
            ? ""
            : fmt::format(": there is nothing left to train of {}; give a "
                          "larger {} to go on",
                          counted(end_, "step"),
                          config_.train.max_steps > 0 ? "train.max_steps" : "train.epochs")));
  }
  if (folder_ && !folder_->begin(to_toml(config_))) {
    progress_.warning(
        fmt::format("{}: has been changed and stays as it is; the checkpoints hold the settings of "
                    "this run",
                    folder_->config().string()));
  }
  for (const auto& observer : observers_) observer->started(report_, *trainer_);
  report_span("start-up", since_start_);
}

}  // namespace ridgeline::engine
