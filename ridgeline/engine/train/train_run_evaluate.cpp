#include <algorithm>
#include <cmath>

#include "ridgeline/core/text.h"
#include "ridgeline/engine/ranks.h"
#include "ridgeline/engine/train/train_run.h"

// Evaluation of a run, and its consequences: the best weights, and early stopping.
namespace ridgeline::engine {
namespace {

// "validation loss 0.0931 accuracy 97.31 %"
std::string text_of(const char* part, const Evaluation& result) {
  std::string text = fmt::format("{} {}", part, to_text(Metric::loss, result.loss));
  const Metric main = main_metric(result);
  if (main != Metric::loss) text += " " + to_text(main, value_of(result, main));
  return text;
}

// The kind of the targets, and the metrics that fit them besides the loss.
struct MonitoredTargets {
  const char* name;
  std::vector<Metric> metrics;
};

MonitoredTargets monitored(const data::SampleSet& set, const nn::Loss& loss, bool heads) {
  if (heads) return {"those of several heads", {}};
  if (!set.has_values()) {
    MonitoredTargets classes{"classes", {Metric::accuracy}};
    if (set.targets_per_sample() > 1) return classes;  // outputs are not kept
    classes.metrics.insert(classes.metrics.end(), {Metric::f1, Metric::auc});
    if (set.classes > 5) classes.metrics.push_back(Metric::top5);
    return classes;
  }
  if (loss.kind == nn::LossKind::binary_cross_entropy) return {"labels", {Metric::f1, Metric::auc}};
  if (loss.quantiles.size() > 1) return {"values of several quantiles", {}};
  return {"values", {Metric::mse, Metric::mae, Metric::r2}};
}

}  // namespace

void TrainRun::check_monitor() const {
  const TrainConfig& train = config_.train;
  const data::DataSet& set = trainer_->set();
  if (!set.validation && (train.keep_best || train.patience > 0)) {
    throw_error(ErrorKind::usage,
                "train.{} needs a validation set: give data.split, as in --set "
                "'data.split={{validation=0.1}}'",
                train.keep_best ? "keep = \"best\"" : "patience");
  }
  const auto [targets, metrics] =
      monitored(set.train, train.loss, !trainer_->model().graph().heads().empty());
  if (train.monitor == Metric::loss || std::ranges::find(metrics, train.monitor) != metrics.end()) {
    return;
  }
  std::string names = "loss";
  for (const Metric metric : metrics) names += fmt::format(", {}", name(metric));
  throw_error(ErrorKind::usage,
              "train.monitor {}: is no metric of {}, whose targets are {}; its metrics are {}",
              name(train.monitor), config_.data.name, targets, names);
}

bool TrainRun::out_of_patience() const {
  return config_.train.patience > 0 && best_.waited >= config_.train.patience;
}

// Returns whether it is the best so far.
bool TrainRun::consider_best(const Evaluation& result) {
  // The ranks' sums are equal, but the root decides for all.
  const double value = value_of(result, config_.train.monitor);
  const bool better = agreed(int32_t(best_.is_beaten_by(value, config_.train.monitor))) != 0;
  if (!better) {
    ++best_.waited;
    return false;
  }
  best_.step = trainer_->step();
  best_.value = value;
  best_.waited = 0;
  if (config_.train.keep_best) best_.weights = trainer_->model_snapshot();
  return true;
}

std::string TrainRun::show_evaluation(const Evaluation& result, bool validation,
                                      const Clock& clock) {
  report_.test_seconds += clock.seconds();
  const int64_t step = trainer_->step(), per_epoch = trainer_->steps_per_epoch();
  const char* part = validation ? "validation" : "test";
  const Metric main = main_metric(result);
  last_score_ = fmt::format("{} {}", part, to_text(main, value_of(result, main)));
  report_span("evaluate", clock);
  EvalPoint point;
  point.step = step;
  point.epoch = double(step) / double(per_epoch);
  point.loss = result.loss;
  point.accuracy = result.accuracy;
  point.metrics = metrics_of(result);
  point.validation = validation;
  point.seconds = since_start_.seconds();
  for (const auto& observer : observers_) observer->evaluated(point, *trainer_);
  std::string text = text_of(part, result);
  if (trainer_->set().train.streams > 0) {
    text += fmt::format("  perplexity {:.3f}", std::exp(result.loss));
  }
  return text;
}

void TrainRun::evaluate(bool scheduled) {
  const Clock clock;
  const bool validates = trainer_->has_validation();
  const Evaluation result = validates ? trainer_->validate() : trainer_->evaluate();
  if (validates) {
    report_.validation = result;
  } else {
    report_.test = result;
  }
  evaluated_ = true;
  if (ranks_ != nullptr) check_replicas(*ranks_, trainer_->snapshot(), trainer_->step());
  const int64_t step = trainer_->step(), per_epoch = trainer_->steps_per_epoch();
  const int64_t epoch = (step + per_epoch - 1) / per_epoch;
  const bool better = validates && scheduled && consider_best(result);
  // A run may be resumed with fewer epochs than it has already made.
  std::string text =
      fmt::format("epoch {}/{}  step {}", epoch, std::max(epoch, config_.train.epochs), step);
  if (epoch_.targets > 0) {
    text += fmt::format("  train loss {:.4f}", epoch_.mean_loss());
    if (!std::isnan(epoch_.accuracy())) {
      text += fmt::format(" accuracy {:.2f} %", 100 * epoch_.accuracy());
    }
  }
  text += "  " + show_evaluation(result, validates, clock);
  if (better && (config_.train.keep_best || config_.train.patience > 0)) text += "  best so far";
  if (samples_here_ > 0) {
    text += fmt::format("  {} inputs/s", grouped(double(samples_here_) / report_.train_seconds));
  }
  progress_.line(text);
  if (scheduled && out_of_patience()) {
    progress_.line(fmt::format(
        "stopped early after step {}: the validation {} has not been {} for {}{}", step,
        name(config_.train.monitor), best_.step < 0 ? "finite" : "better",
        counted(best_.waited, "evaluation"),
        best_.step < 0 ? "" : fmt::format("; the best is that of step {}", best_.step)));
  }
}

// Restores the model of a run that keeps the best: that of the best evaluation, or of the last one
// if that is even better and eval_every did not schedule it.
void TrainRun::restore_best() {
  const Metric monitor = config_.train.monitor;
  const double last = value_of(*report_.validation, monitor);
  const bool last_is_best =
      agreed(int32_t(best_.step == trainer_->step() || best_.is_beaten_by(last, monitor))) != 0;
  report_.monitor = monitor;
  report_.stopped_early = out_of_patience();
  if (best_.step < 0 && !last_is_best) {
    if (config_.train.keep_best) {
      progress_.warning(fmt::format(
          "the validation {} was never finite: no weights are the best, and the last are kept",
          name(monitor)));
    }
    return;
  }
  report_.best_step = last_is_best ? trainer_->step() : best_.step;
  report_.best_value = last_is_best ? last : best_.value;
  if (!config_.train.keep_best) return;
  report_.kept_best = true;
  if (last_is_best) return;
  trainer_->restore_model(best_.weights);
  report_.validation = trainer_->validate();
}

// Evaluated once, with the weights that are kept: no choice depends on the test set.
void TrainRun::evaluate_test() {
  const Clock clock;
  report_.test = trainer_->evaluate();
  const std::string text = show_evaluation(report_.test, /*validation=*/false, clock);
  progress_.line(report_.kept_best
                     ? fmt::format("best of step {} ({})  {}", report_.best_step,
                                   "validation " + to_text(report_.monitor, report_.best_value),
                                   text)
                     : text);
}

}  // namespace ridgeline::engine
