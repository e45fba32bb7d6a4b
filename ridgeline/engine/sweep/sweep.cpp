#include "ridgeline/engine/sweep/sweep.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "ridgeline/core/text.h"
#include "ridgeline/engine/load_data.h"
#include "ridgeline/engine/machine.h"
#include "ridgeline/engine/resident_set.h"

namespace ridgeline::engine {
namespace {

struct Axis {
  std::string key;
  std::vector<std::string> values;
};

Axis parse_axis(const std::string& set) {
  const size_t equals = set.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw_error(ErrorKind::usage, "--set {}: write key=value or key=a,b,c", set);
  }
  return {std::string(trimmed(std::string_view(set).substr(0, equals))),
          split_values(set.substr(equals + 1))};
}

std::string label_of(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
  std::string label;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (i > 0) label += ' ';
    label += keys[i] + "=" + values[i];
  }
  return label;
}

// Every combination, the last key fastest.
std::vector<std::vector<std::string>> combine(
    const std::vector<std::vector<std::string>>& choices) {
  std::vector<std::vector<std::string>> all{{}};
  for (const auto& values : choices) {
    std::vector<std::vector<std::string>> longer;
    for (const auto& head : all) {
      for (const std::string& value : values) {
        longer.push_back(head);
        longer.back().push_back(value);
      }
    }
    all = std::move(longer);
  }
  return all;
}

SweepPoint run_one(const Config& config, std::shared_ptr<const data::DataSet> set,
                   Communicator* ranks) {
  SweepPoint point;
  TrainOptions train_options;
  train_options.ranks = ranks;
  train_options.progress = Progress::Style::none;
  train_options.set = std::move(set);
  try {
    point.report = train(config, train_options);
  } catch (const Error& error) {
    // A rate that diverges is a result of the study; anything else is a fault.
    if (error.kind() != ErrorKind::numeric) throw;
    point.error = error.what();
  }
  return point;
}

// What the configs name, each loaded once; a model that does not fit its data is found here.
using Sets = std::map<std::string, std::shared_ptr<const data::DataSet>>;
Sets load_sets(const std::vector<Config>& configs, const SweepOptions& options) {
  Sets sets;
  for (const Config& config : configs) {
    auto& set = sets[data_key(config)];
    if (!set) {
      set = std::make_shared<data::DataSet>(load_data(config, options.data));
    }
    check_outputs(config.build_model(set->train.sample_shape()), set->train, config.data.name,
                  config.train.loss);
  }
  return sets;
}

// By the monitor of each run's config, which is the same for all unless it is swept.
std::optional<size_t> choose(const std::vector<SweepPoint>& points) {
  std::optional<size_t> best;
  for (size_t i = 0; i < points.size(); ++i) {
    const TrainReport& report = points[i].report;
    if (!points[i].error.empty() || !report.validation || report.best_step < 0) continue;
    const auto value = [](const TrainReport& each) {
      return each.kept_best ? each.best_value : value_of(*each.validation, each.monitor);
    };
    const double now = value(report);
    if (std::isnan(now)) continue;
    if (!best) {
      best = i;
      continue;
    }
    const double then = value(points[*best].report);
    if (larger_is_better(report.monitor) ? now > then : now < then) best = i;
  }
  return best;
}

}  // namespace

std::vector<std::string> split_values(const std::string& text) {
  std::vector<std::string> values(1);
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && depth <= 0) {
      values.emplace_back();
      continue;
    }
    values.back() += c;
  }
  for (std::string& value : values) value = std::string(trimmed(value));
  return values;
}

Sweep sweep(const std::filesystem::path& config, const std::vector<std::string>& sets,
            const SweepOptions& options) {
  Sweep result;
  std::vector<std::string> fixed;
  for (const std::string& set : sets) {
    const Axis axis = parse_axis(set);
    if (axis.values.size() == 1) {
      fixed.push_back(set);
      continue;
    }
    if (std::ranges::find(result.keys, axis.key) != result.keys.end()) {
      throw_error(ErrorKind::usage, "--set {}: {} is swept twice; give all its values in one --set",
                  set, axis.key);
    }
    result.keys.push_back(axis.key);
    result.choices.push_back(axis.values);
  }
  if (result.keys.empty()) {
    throw_error(ErrorKind::usage, "sweep: no --set has several values; write --set key=a,b,c");
  }
  const auto combinations = combine(result.choices);
  std::vector<Config> configs;
  for (const auto& values : combinations) {
    std::vector<std::string> all = fixed;
    for (size_t i = 0; i < values.size(); ++i) all.push_back(result.keys[i] + "=" + values[i]);
    configs.push_back(load_config(config, all));
    if (options.adjust) options.adjust(configs.back());
  }
  // Once for all runs, so that what there is to say about it is said once.
  std::string settled;
  for (Config& each : configs) {
    if (each.run.device != "auto") continue;
    if (settled.empty()) {
      settle_device(each.run);
      settled = each.run.device;
    }
    each.run.device = settled;
  }
  const Sets sets_of = load_sets(configs, options);
  for (size_t i = 0; i < configs.size() && result.stopped_by == 0; ++i) {
    const std::string label = label_of(result.keys, combinations[i]);
    if (options.progress) options.progress(i, configs.size(), label, nullptr, {});
    SweepPoint point;
    try {
      point = run_one(configs[i], sets_of.at(data_key(configs[i])), options.ranks);
    } catch (const Error& error) {
      // What one of several ranks meets must end them all.
      if (options.ranks != nullptr && options.ranks->size() > 1) {
        throw Error(error.kind(), label + ": " + error.what());
      }
      result.failed.emplace(error.kind(), label + ": " + error.what());
      break;
    }
    point.values = combinations[i];
    result.stopped_by = point.report.stopped_by;
    if (result.stopped_by != 0) break;  // half a run is no point of the study
    if (options.progress) options.progress(i, configs.size(), label, &point.report, point.error);
    result.points.push_back(std::move(point));
  }
  result.chosen = choose(result.points);
  return result;
}

}  // namespace ridgeline::engine
