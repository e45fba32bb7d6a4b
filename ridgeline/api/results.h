#pragma once

#include <cmath>
#include <optional>
#include <utility>

#include "ridgeline/engine/train/train.h"
#include "ridgeline/ridgeline.h"

namespace ridgeline::api {

inline std::optional<double> if_number(double value) {
  return std::isnan(value) ? std::nullopt : std::optional(value);
}

// Returns the public form of a run's report, with the model that it trained.
inline TrainResult result_of(const engine::TrainReport& report, Model model) {
  TrainResult result{.model = std::move(model)};
  result.steps = report.steps;
  result.train_loss = report.train_loss;
  result.train_accuracy = if_number(report.train_accuracy);
  if (report.test.samples > 0) {
    result.test_loss = report.test.loss;
    result.test_accuracy = if_number(report.test.accuracy);
  }
  result.seconds = report.train_seconds;
  result.samples_per_second = report.inputs_per_second;
  if (report.limit) result.limit = report.limit_fraction;
  return result;
}

}  // namespace ridgeline::api
