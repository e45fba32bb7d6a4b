#include "ridgeline/engine/train/folds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "ridgeline/core/text.h"
#include "ridgeline/data/batches.h"
#include "ridgeline/data/take_samples.h"
#include "ridgeline/engine/load_data.h"
#include "ridgeline/engine/train/run_folder.h"
#include "ridgeline/engine/user_data.h"

namespace ridgeline::engine {
namespace {

// The mean over the folds, and their sample standard deviation (n - 1).
struct MetricSpread {
  Metric metric;
  double mean = 0, deviation = 0;
};

std::vector<MetricSpread> spreads(const FoldsReport& report) {
  std::vector<MetricSpread> all;
  for (const auto& [text, metric] : kMetrics) {
    std::vector<double> values;
    for (const TrainReport& fold : report.folds) {
      if (fold.validation) values.push_back(value_of(*fold.validation, metric));
    }
    const bool fits =
        !values.empty() && std::ranges::none_of(values, [](double v) { return std::isnan(v); });
    if (!fits) continue;
    MetricSpread spread{metric};
    for (const double value : values) spread.mean += value / double(values.size());
    double squares = 0;
    for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
    if (values.size() > 1) spread.deviation = std::sqrt(squares / double(values.size() - 1));
    all.push_back(spread);
  }
  return all;
}

std::shared_ptr<const data::DataSet> set_of_fold(const data::DataSet& whole,
                                                 const std::vector<int>& fold_of, int fold) {
  std::vector<int64_t> inside, outside, test(size_t(whole.test.size()));
  for (size_t i = 0; i < fold_of.size(); ++i) {
    (fold_of[i] == fold ? inside : outside).push_back(int64_t(i));
  }
  std::iota(test.begin(), test.end(), int64_t{0});
  auto set = std::make_shared<data::DataSet>();
  set->train = data::take_samples(whole.train, outside);
  set->validation = data::take_samples(whole.train, inside);
  set->test = data::take_samples(whole.test, test);
  return set;
}

}  // namespace

std::vector<int> assign_folds(int64_t n, int folds, uint64_t seed,
                              std::span<const int32_t> classes) {
  std::vector<int32_t> order = data::epoch_order(n, seed, 0, /*shuffle=*/true);
  if (!classes.empty()) {
    std::ranges::stable_sort(order, {}, [&](int32_t sample) { return classes[size_t(sample)]; });
  }
  std::vector<int> fold_of(static_cast<size_t>(n));
  for (size_t i = 0; i < order.size(); ++i) fold_of[size_t(order[i])] = int(i % size_t(folds));
  return fold_of;
}

namespace {

// The sets of the folds, one at a time.
class FoldSets {
 public:
  FoldSets(const Config& config, const TrainOptions& options, int folds) {
    if (config.data.user) {
      own_.emplace(config);
    } else {
      whole_ = load_data(config, options.data);
    }
    if (!own_ && whole_.validation) {
      throw_error(ErrorKind::usage,
                  "--folds: every fold is validated on its own part; leave data.split out");
    }
    if (!own_ && whole_.train.streams > 0) {
      throw_error(ErrorKind::usage, "--folds: {} is one text, whose parts follow one another",
                  config.data.name);
    }
    const int64_t samples = own_ ? own_->samples() : whole_.train.size();
    if (folds > samples) {
      throw_error(ErrorKind::usage, "--folds {}: {} has {} only", folds, config.data.name,
                  counted(samples, "training sample"));
    }
    if (own_ && own_->in_order()) {
      // Consecutive timesteps stay together, so that folds share few windows.
      for (int64_t i = 0; i < samples; ++i) fold_of_.push_back(int(i * folds / samples));
      return;
    }
    std::span<const int32_t> classes;
    if (own_) {
      classes = own_->classes();
    } else if (!whole_.train.has_values() && whole_.train.targets_per_sample() == 1) {
      classes = whole_.train.targets.span<const int32_t>();
    }
    fold_of_ = assign_folds(samples, folds, config.train.seed, classes);
  }

  std::shared_ptr<const data::DataSet> make(int fold) const {
    if (own_) return std::make_shared<data::DataSet>(own_->make(fold_of_, fold));
    return set_of_fold(whole_, fold_of_, fold);
  }

 private:
  std::optional<UserFolds> own_;
  data::DataSet whole_;
  std::vector<int> fold_of_;
};

}  // namespace

std::filesystem::path fold_folder(const std::filesystem::path& out, int fold) {
  return out / fmt::format("fold-{}", fold + 1);
}

FoldsReport train_folds(const Config& config, const TrainOptions& options, int folds) {
  if (!options.trace.empty()) {
    throw_error(ErrorKind::usage, "--trace: one timeline is of one run; leave out --folds");
  }
  const FoldSets sets(config, options, folds);
  const bool root = options.ranks == nullptr || options.ranks->is_root();
  FoldsReport report;
  for (int fold = 0; fold < folds && report.stopped_by == 0; ++fold) {
    TrainOptions one = options;
    if (!one.out.empty()) one.out = fold_folder(options.out, fold);
    if (!one.report.empty()) one.report = fold_folder(options.report, fold);
    one.resume = options.resume && (one.out.empty() || RunFolder::holds_run(one.out));
    one.continued_by = fmt::format("{} --folds {}", options.out.string(), folds);
    one.set = sets.make(fold);
    Progress(root ? options.progress : Progress::Style::none)
        .line(fmt::format("fold {} of {}: {} to train on, {} to validate on", fold + 1, folds,
                          one.set->train.size(), one.set->validation->size()));
    TrainReport made = train(config, one);
    report.stopped_by = made.stopped_by;
    if (made.stopped_by == 0) report.folds.push_back(std::move(made));
  }
  return report;
}

nlohmann::json to_json(const FoldsReport& report) {
  nlohmann::json json{{"folds", nlohmann::json::array()},
                      {"mean", nlohmann::json::object()},
                      {"deviation", nlohmann::json::object()},
                      {"stopped_by", report.stopped_by}};
  for (const TrainReport& fold : report.folds) json["folds"].push_back(to_json(fold));
  for (const MetricSpread& each : spreads(report)) {
    json["mean"][std::string(name(each.metric))] = each.mean;
    json["deviation"][std::string(name(each.metric))] = each.deviation;
  }
  return json;
}

std::string summary(const FoldsReport& report) {
  std::string text =
      fmt::format("{}, validation:\n", counted(int64_t(report.folds.size()), "fold"));
  for (const MetricSpread& each : spreads(report)) {
    text += fmt::format("{:<10} {:.6g} +- {:.2g}\n", name(each.metric), each.mean, each.deviation);
  }
  return text;
}

}  // namespace ridgeline::engine
