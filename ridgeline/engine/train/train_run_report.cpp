#include <cmath>
#include <nlohmann/json.hpp>

#include "ridgeline/core/cache_file.h"
#include "ridgeline/core/json.h"
#include "ridgeline/core/text.h"
#include "ridgeline/engine/ranks.h"
#include "ridgeline/engine/train/train_run.h"

namespace ridgeline::engine {
namespace {

constexpr size_t kMostSpans = 20'000;  // of a rank's timeline

}  // namespace

void TrainRun::report_span(const char* what, const Clock& clock, int64_t steps) {
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

// Passes the spans of the other ranks to the root's observers.
void TrainRun::gather_spans() {
  const bool wanted = !options_.trace.empty() || !options_.report.empty();
  if (ranks_ == nullptr || !agreed(wanted)) return;
  nlohmann::json mine = nlohmann::json::array();
  for (const HostSpan& span : spans_) {
    mine.push_back({span.what, span.begin, span.seconds, span.steps, span.waited});
  }
  const std::vector<std::string> all = ranks_->texts(dump_json(mine, -1));
  for (size_t rank = 1; root() && rank < all.size(); ++rank) {
    for (const auto& each : nlohmann::json::parse(all[rank])) {
      const HostSpan span{each[0], each[1], each[2], each[3], each[4], int(rank)};
      for (const auto& observer : observers_) observer->did(span);
    }
  }
}

void TrainRun::log() {
  if (since_log_.targets > 0 && !observers_.empty()) {
    TrainPoint point;
    point.step = trainer_->step();
    point.epoch = double(point.step) / double(trainer_->steps_per_epoch());
    point.loss = since_log_.mean_loss();
    point.accuracy = since_log_.accuracy();
    point.lr = trainer_->lr(point.step - 1);
    point.gradient_norm = trainer_->gradient_norm();
    const double seconds = report_.train_seconds - logged_seconds_;
    point.inputs_per_second = double(samples_here_ - logged_samples_) / seconds;
    if (report_.limit) point.limit_fraction = (limit_seconds_ - logged_limit_) / seconds;
    if (const double scale = trainer_->loss_scale(); scale > 0) {
      point.loss_scale = scale;
      point.skipped_steps = trainer_->skipped_steps();
    }
    point.seconds = since_start_.seconds();
    for (const auto& observer : observers_) observer->logged(point);
  }
  logged_seconds_ = report_.train_seconds;
  logged_limit_ = limit_seconds_;
  logged_samples_ = samples_here_;
  since_log_ = {};
}

void TrainRun::show() {
  const int64_t step = trainer_->step(), per_epoch = trainer_->steps_per_epoch();
  Progress::State state;
  state.epoch = (step - 1) / per_epoch + 1;
  state.epochs = config_.train.epochs;
  state.step = step;
  state.steps = end_;
  state.loss = epoch_.mean_loss();
  state.accuracy = epoch_.targets > 0 ? epoch_.accuracy() : -1;
  state.inputs_per_second = double(samples_here_) / report_.train_seconds;
  state.seconds_left = double(end_ - step) * report_.seconds_per_step();
  state.last_score = last_score_;
  progress_.update(state);
}

void TrainRun::measure_network() {
  report_.mpi = mpi_info_of(*ranks_);
  report_.network =
      prof::network_of(*ranks_, cache_file(fmt::format("network-{}.json", report_.ranks)));
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

}  // namespace ridgeline::engine
