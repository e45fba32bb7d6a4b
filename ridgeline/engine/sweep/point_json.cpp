#include "ridgeline/engine/sweep/point_json.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "ridgeline/core/json.h"

namespace ridgeline::engine {
namespace {

using nlohmann::json;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// JSON has no NaN or infinity; null stands for them.
double json_number(const json& from, const char* key) {
  const auto found = from.find(key);
  return found != from.end() && found->is_number() ? found->get<double>() : kNone;
}

Evaluation read_evaluation(const json& from) {
  Evaluation result;
  result.loss = json_number(from, "loss");
  result.accuracy = json_number(from, "accuracy");
  Scores& scores = result.scores;
  scores.top5 = json_number(from, "top5");
  scores.f1 = json_number(from, "f1");
  scores.auc = json_number(from, "auc");
  scores.mse = json_number(from, "mse");
  scores.mae = json_number(from, "mae");
  scores.r2 = json_number(from, "r2");
  return result;
}

TrainReport read_report(const json& from) {
  TrainReport report;
  report.test = read_evaluation(from);
  if (from.contains("validation")) report.validation = read_evaluation(from.at("validation"));
  report.train_loss = json_number(from, "train_loss");
  report.train_accuracy = json_number(from, "train_accuracy");
  report.steps = from.at("steps").get<int64_t>();
  report.steps_here = from.at("steps_here").get<int64_t>();
  report.train_seconds = json_number(from, "train_seconds");
  report.inputs_per_second = json_number(from, "inputs_per_second");
  if (from.contains("best")) {
    const json& best = from.at("best");
    for (const auto& [name, metric] : kMetrics) {
      if (best.at("monitor").get<std::string>() == name) report.monitor = metric;
    }
    report.best_value = json_number(best, "value");
    report.best_step = best.at("step").get<int64_t>();
    report.kept_best = best.at("kept").get<bool>();
  }
  return report;
}

}  // namespace

json to_json(const SweepPoint& point) {
  json entry{{"values", point.values}};
  if (!point.error.empty()) {
    entry["error"] = point.error;
    return entry;
  }
  entry["score"] = point.score;
  if (point.pruned_after > 0) entry["pruned_after"] = point.pruned_after;
  entry["report"] =
      point.kept_report.empty() ? to_json(point.report) : parse_json(point.kept_report);
  return entry;
}

SweepPoint read_point(const json& from) {
  try {
    SweepPoint point;
    from.at("values").get_to(point.values);
    point.error = from.value("error", std::string());
    point.score = json_number(from, "score");
    if (!point.error.empty()) return point;
    point.pruned_after = from.value("pruned_after", int64_t{0});
    point.report = read_report(from.at("report"));
    point.kept_report = dump_json(from.at("report"), -1);
    return point;
  } catch (const json::exception& error) {
    throw_error(ErrorKind::data, "no point of a sweep: {}", error.what());
  }
}

}  // namespace ridgeline::engine
