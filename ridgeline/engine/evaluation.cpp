#include "ridgeline/engine/evaluation.h"

#include <fmt/format.h>

#include <cmath>

namespace ridgeline::engine {

std::string_view name(Metric metric) {
  for (const auto& [text, each] : kMetrics) {
    if (each == metric) return text;
  }
  return {};
}

bool larger_is_better(Metric metric) {
  return metric != Metric::loss && metric != Metric::mse && metric != Metric::mae;
}

std::string to_text(Metric metric, double value) {
  switch (metric) {
    case Metric::accuracy:
    case Metric::top5:
      return fmt::format("{} {:.2f} %", name(metric), 100 * value);
    case Metric::loss:
    case Metric::f1:
    case Metric::auc:
    case Metric::r2:
      return fmt::format("{} {:.4f}", name(metric), value);
    case Metric::mse:
    case Metric::mae:
      break;  // in the data's own units, of any size
  }
  return fmt::format("{} {:.5g}", name(metric), value);
}

double value_of(const Evaluation& result, Metric metric) {
  switch (metric) {
    case Metric::loss:
      return result.loss;
    case Metric::accuracy:
      return result.accuracy;
    case Metric::top5:
      return result.scores.top5;
    case Metric::f1:
      return result.scores.f1;
    case Metric::auc:
      return result.scores.auc;
    case Metric::mse:
      return result.scores.mse;
    case Metric::mae:
      return result.scores.mae;
    case Metric::r2:
      return result.scores.r2;
  }
  return Scores::kNone;
}

std::vector<std::pair<Metric, double>> metrics_of(const Evaluation& result) {
  std::vector<std::pair<Metric, double>> all;
  for (const auto& [text, metric] : kMetrics) {
    const double value = value_of(result, metric);
    if (metric == Metric::loss || !std::isnan(value)) all.emplace_back(metric, value);
  }
  return all;
}

Metric main_metric(const Evaluation& result) {
  if (!std::isnan(result.accuracy)) return Metric::accuracy;
  if (!std::isnan(result.scores.mae)) return Metric::mae;
  return std::isnan(result.scores.f1) ? Metric::loss : Metric::f1;
}

}  // namespace ridgeline::engine
