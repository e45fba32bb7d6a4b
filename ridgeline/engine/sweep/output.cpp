#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "ridgeline/core/json.h"
#include "ridgeline/engine/sweep/point_json.h"

namespace ridgeline::engine {
namespace {

constexpr const char* kLastMetric = "inputs_per_second";
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Returns the evaluation by which combinations are compared: the test set only if there is no
// other.
const Evaluation& compared(const TrainReport& report) {
  return report.validation ? *report.validation : report.test;
}

std::string quote_csv(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.6g}", value) : "";
}

// Returns rows of text with columns padded to their widest entry.
std::string align(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += fmt::format("{:>{}}{}", row[i], widths[i], i + 1 < row.size() ? "  " : "\n");
    }
  }
  return text;
}

// Returns the key with the most values, which becomes the x axis.
size_t widest_key(const Sweep& sweep) {
  size_t widest = 0;
  for (size_t i = 1; i < sweep.choices.size(); ++i) {
    if (sweep.choices[i].size() > sweep.choices[widest].size()) widest = i;
  }
  return widest;
}

}  // namespace

double metric_of(const SweepPoint& point, const std::string& metric) {
  if (!point.error.empty()) return kNone;
  const TrainReport& report = point.report;
  for (const auto& [name, each] : kMetrics) {
    if (metric == name) return value_of(compared(report), each);
  }
  if (metric == "train_loss") return report.train_loss;
  if (metric == "us_per_step") return 1e6 * report.seconds_per_step();
  if (metric == "inputs_per_second") return report.inputs_per_second;
  throw_error(ErrorKind::usage, "unknown metric '{}'; known: {}", metric,
              fmt::join(chart_metrics(), ", "));
}

std::vector<std::string> chart_metrics() {
  std::vector<std::string> all{"accuracy", "loss"};
  for (const auto& [name, metric] : kMetrics) {
    if (std::ranges::find(all, name) == all.end()) all.emplace_back(name);
  }
  for (const char* name : {"train_loss", "us_per_step", kLastMetric}) all.emplace_back(name);
  return all;
}

std::vector<std::string> sweep_metrics(const Sweep& sweep) {
  std::vector<std::string> all = chart_metrics();
  std::erase_if(all, [&](const std::string& metric) {
    const auto has = [&](const SweepPoint& point) {
      return std::isfinite(metric_of(point, metric));
    };
    const bool score = metric != "accuracy" && metric != "loss" && metric != "train_loss" &&
                       metric != "us_per_step" && metric != kLastMetric;
    return score && std::ranges::none_of(sweep.points, has);
  });
  return all;
}

std::string to_table(const Sweep& sweep) {
  std::vector<std::vector<std::string>> rows{sweep.keys};
  // Accuracy of classes, or else how near values and labels are.
  std::vector<std::string> scores = sweep_metrics(sweep);
  std::erase_if(scores, [](const std::string& metric) {
    return metric != "f1" && metric != "mae" && metric != "r2";
  });
  if (std::ranges::any_of(sweep.points, [](const SweepPoint& point) {
        return std::isfinite(metric_of(point, "accuracy"));
      })) {
    scores = {"accuracy"};
  }
  for (const std::string& score : scores) {
    rows.front().push_back(score == "accuracy" ? "accuracy %" : score);
  }
  for (const char* title : {"loss", "train loss", "us a step", "inputs/s"}) {
    rows.front().push_back(title);
  }
  const bool prunes = std::ranges::any_of(
      sweep.points, [](const SweepPoint& point) { return point.pruned_after > 0; });
  if (prunes) rows.front().push_back("pruned after");
  for (const SweepPoint& point : sweep.points) {
    std::vector<std::string> row = point.values;
    if (!point.error.empty()) {
      row.push_back("diverged");
      row.resize(rows.front().size());
    } else {
      for (const std::string& score : scores) {
        const double value = metric_of(point, score);
        row.push_back(score == "accuracy" ? fmt::format("{:.2f}", 100 * value) : number(value));
      }
      row.push_back(fmt::format("{:.4f}", compared(point.report).loss));
      row.push_back(fmt::format("{:.4f}", point.report.train_loss));
      // Members that were pruned, or read from an earlier sweep, may have no times.
      const bool timed = point.report.inputs_per_second > 0;
      row.push_back(timed ? fmt::format("{:.1f}", 1e6 * point.report.seconds_per_step()) : "");
      row.push_back(timed ? fmt::format("{:.0f}", point.report.inputs_per_second) : "");
      if (prunes) row.push_back(point.pruned_after > 0 ? std::to_string(point.pruned_after) : "");
    }
    rows.push_back(std::move(row));
  }
  std::string text = align(rows);
  if (!sweep.chosen) return text;
  const SweepPoint& best = sweep.points[*sweep.chosen];
  std::string values, test;
  for (size_t i = 0; i < sweep.keys.size(); ++i)
    values += " " + sweep.keys[i] + "=" + best.values[i];
  for (const auto& [metric, value] : metrics_of(best.report.test)) {
    test += (test.empty() ? "" : ", ") + to_text(metric, value);
  }
  return text + fmt::format("chosen by the validation set ({}):{}; on the test set: {}\n",
                            name(best.report.monitor), values, test);
}

std::string to_csv(const Sweep& sweep) {
  std::string text;
  for (const std::string& key : sweep.keys) text += quote_csv(key) + ",";
  const std::vector<std::string> metrics = sweep_metrics(sweep);
  for (const std::string& metric : metrics) text += metric + ",";
  text += "error\n";
  for (const SweepPoint& point : sweep.points) {
    for (const std::string& value : point.values) text += quote_csv(value) + ",";
    for (const std::string& metric : metrics) text += number(metric_of(point, metric)) + ",";
    text += quote_csv(point.error) + "\n";
  }
  return text;
}

bool is_sweep_csv(std::string_view head) {
  const std::string_view line = head.substr(0, head.find('\n'));
  return line.ends_with(fmt::format(",{},error", kLastMetric));
}

std::string to_json_text(const Sweep& sweep) {
  nlohmann::json points = nlohmann::json::array();
  for (size_t p = 0; p < sweep.points.size(); ++p) {
    const SweepPoint& point = sweep.points[p];
    nlohmann::json entry;
    for (size_t i = 0; i < sweep.keys.size(); ++i) entry["set"][sweep.keys[i]] = point.values[i];
    if (point.error.empty()) {
      entry["report"] = to_json(point)["report"];
      if (point.pruned_after > 0) entry["pruned_after"] = point.pruned_after;
      // The test set is reported only for the point that was chosen without it.
      for (const auto& [name, metric] : kMetrics) {
        if (sweep.chosen && *sweep.chosen != p) entry["report"].erase(std::string(name));
      }
    } else {
      entry["error"] = point.error;
    }
    points.push_back(std::move(entry));
  }
  nlohmann::json document{{"keys", sweep.keys}, {"points", points}};
  if (sweep.chosen) document["chosen"] = *sweep.chosen;
  return dump_json(document, 2) + "\n";
}

Chart to_chart(const Sweep& sweep, const std::string& metric) {
  Chart chart;
  const size_t x = widest_key(sweep);
  chart.title = metric + " over " + sweep.keys[x];
  chart.x_title = sweep.keys[x];
  chart.y_title = metric;
  chart.x = sweep.choices[x];
  std::map<std::string, size_t> known;
  for (const SweepPoint& point : sweep.points) {
    std::string name;
    for (size_t i = 0; i < sweep.keys.size(); ++i) {
      if (i == x) continue;
      // The last part of a key is a sufficient label: "lr" of "train.optimizer.lr".
      const std::string& key = sweep.keys[i];
      if (!name.empty()) name += ", ";
      name += key.substr(key.rfind('.') + 1) + "=" + point.values[i];
    }
    const auto [entry, fresh] = known.try_emplace(name, chart.series.size());
    if (fresh) chart.series.push_back({name, std::vector<double>(chart.x.size(), kNone)});
    const auto at = std::find(chart.x.begin(), chart.x.end(), point.values[x]) - chart.x.begin();
    chart.series[entry->second].y[size_t(at)] = metric_of(point, metric);
  }
  return chart;
}

}  // namespace ridgeline::engine
