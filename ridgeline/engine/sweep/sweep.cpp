#include "ridgeline/engine/sweep/sweep.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>

#include "ridgeline/core/file.h"
#include "ridgeline/core/json.h"
#include "ridgeline/core/text.h"
#include "ridgeline/data/sha256.h"
#include "ridgeline/engine/load_data.h"
#include "ridgeline/engine/machine.h"
#include "ridgeline/engine/ranks.h"
#include "ridgeline/engine/resident_set.h"
#include "ridgeline/engine/sweep/journal.h"
#include "ridgeline/engine/sweep/shared_members.h"
#include "ridgeline/engine/user_data.h"

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

// Returns every combination, with the last key varying fastest.
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

// Loads the sets that the configs name, each once, and checks that the models fit their data.
using Sets = std::map<std::string, std::shared_ptr<const data::DataSet>>;
Sets load_sets(const std::vector<Config>& configs, const SweepOptions& options) {
  Sets sets;
  for (const Config& config : configs) {
    auto& set = sets[data_key(config)];
    if (!set) {
      set = std::make_shared<data::DataSet>(load_data(config, options.data));
    }
    check_outputs(settled(config, *set).build_model(set->train.sample_shape()), set->train,
                  config.data.name, config.train.loss);
  }
  return sets;
}

// Compares by the monitor of each run's config, which is the same for all unless it is swept.
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

bool read_whole(std::string_view text, int64_t& value) {
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return !text.empty() && error == std::errc() && at == end;
}

// The value, or each whole number of a range such as "1..4".
void append_value(std::string_view value, std::vector<std::string>& all) {
  constexpr int64_t kMost = 1 << 16;
  const size_t dots = value.find("..");
  int64_t first = 0, last = 0;
  if (dots == std::string_view::npos || !read_whole(value.substr(0, dots), first) ||
      !read_whole(value.substr(dots + 2), last)) {
    all.emplace_back(value);
    return;
  }
  if (first > last || uint64_t(last) - uint64_t(first) >= uint64_t(kMost)) {
    throw_error(ErrorKind::usage, "--set ...={}: a range goes up, to at most {} values", value,
                kMost);
  }
  for (int64_t each = first; each <= last; ++each) all.push_back(std::to_string(each));
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
  std::vector<std::string> all;
  for (const std::string& value : values) append_value(trimmed(value), all);
  return all;
}

namespace {

// The combinations of a study: `keys`, `choices` and a config each.
struct Study {
  std::vector<std::string> keys;
  std::vector<std::vector<std::string>> choices, combinations;
  std::vector<Config> configs;
};

Study read_study(const std::filesystem::path& config, const std::vector<std::string>& sets,
                 const SweepOptions& options) {
  Study study;
  std::vector<std::string> fixed;
  for (const std::string& set : sets) {
    const Axis axis = parse_axis(set);
    if (axis.values.size() == 1) {
      fixed.push_back(set);
      continue;
    }
    if (std::ranges::find(study.keys, axis.key) != study.keys.end()) {
      throw_error(ErrorKind::usage, "--set {}: {} is swept twice; give all its values in one --set",
                  set, axis.key);
    }
    study.keys.push_back(axis.key);
    study.choices.push_back(axis.values);
  }
  if (study.keys.empty()) {
    throw_error(ErrorKind::usage, "sweep: no --set has several values; write --set key=a,b,c");
  }
  study.combinations = combine(study.choices);
  for (const auto& values : study.combinations) {
    std::vector<std::string> all = fixed;
    for (size_t i = 0; i < values.size(); ++i) all.push_back(study.keys[i] + "=" + values[i]);
    study.configs.push_back(load_config(config, all));
    if (options.adjust) options.adjust(study.configs.back());
  }
  // Chosen once for all runs, so that its message appears once.
  std::string settled;
  for (Config& each : study.configs) {
    if (each.run.device != "auto") continue;
    if (settled.empty()) {
      settle_device(each.run);
      settled = each.run.device;
    }
    each.run.device = settled;
  }
  return study;
}

// Returns a text that differs for studies whose results do not belong together.
std::string identity(const Study& study) {
  std::string text;
  for (const Config& each : study.configs) {
    Config config = each;
    config.run.threads = 0;
    config.run.device = "auto";
    text += to_toml(config);
  }
  return data::sha256(std::as_bytes(std::span(text)));
}

// Keeps the best `most` models of those that completed.
void keep_best(std::vector<Sweep::Model>& best, const std::vector<SweepPoint>& points,
               Sweep::Model model, size_t most) {
  const auto score = [&](const Sweep::Model& each) { return points[each.point].score; };
  if (most == 0 || std::isnan(score(model))) return;
  const auto better = [&](const Sweep::Model& a, const Sweep::Model& b) {
    return score(a) != score(b) ? score(a) > score(b) : a.point < b.point;
  };
  best.insert(std::ranges::upper_bound(best, model, better), std::move(model));
  if (best.size() > most) best.pop_back();
}

// The state of one call of sweep(); members are combinations.
class Running {
 public:
  Running(Study study, const SweepOptions& options)
      : study_(std::move(study)),
        options_(options),
        ranks_(several(options.ranks)),
        points_(study_.configs.size()),
        done_(study_.configs.size()) {
    const Sets sets = load_sets(study_.configs, options);
    for (const Config& config : study_.configs) {
      members_.push_back({config, sets.at(data_key(config))});
    }
    if (shares_out()) check_alike(*ranks_, study_.configs.front(), *members_.front().set);
    if (!options.out.empty() && root()) open_journal();
    share_done();
  }

  Sweep run() {
    const PopulationOptions population = population_options();
    const PopulationResult outcome =
        shares_out() ? train_shared(
                           *ranks_, members_, population,
                           [this](size_t member, const MemberResult& each) {
                             return point_of(member, each);
                           },
                           [this](size_t member, const SweepPoint& point) { take(member, point); })
                     : train_population(members_, population);
    Sweep result;
    result.keys = study_.keys;
    result.choices = study_.choices;
    result.stopped_by = outcome.stopped_by;
    if (outcome.failed) {
      result.failed.emplace(outcome.failed->kind(),
                            label(outcome.failed_member) + ": " + outcome.failed->what());
      // An error on one of several ranks must end them all.
      if (ranks_ != nullptr) throw *result.failed;
    }
    collect(result);
    return result;
  }

 private:
  bool root() const { return ranks_ == nullptr || ranks_->is_root(); }
  // Ranks divide the combinations among them, unless they share the work of each.
  bool shares_out() const { return ranks_ != nullptr && !options_.one_by_one; }
  PopulationOptions population_options() {
    PopulationOptions population;
    population.one_by_one = options_.one_by_one;
    population.prune = options_.prune;
    population.models = options_.models > 0;
    // Ranks that share the work of each member keep only results.
    if (!options_.out.empty() && (ranks_ == nullptr || shares_out())) {
      population.folder = SweepJournal::members(options_.out);
    }
    for (size_t i = 0; i < done_.size(); ++i) {
      population.wanted.push_back(!done_[i]);
      if (done_[i]) population.known.push_back({i, points_[i].score, points_[i].pruned_after});
    }
    if (shares_out()) {
      population.threads = threads_of_rank(*ranks_);
    } else {
      population.ranks = ranks_;
    }
    reported_ = population.known.size();
    if (options_.started) {
      population.started = [this](PopulationLayout layout) {
        if (shares_out()) layout.ranks = ranks_->size();
        options_.started(layout, reported_);
      };
    }
    population.begins = [this](size_t member) { begins(member); };
    population.finished = [this](size_t member, const MemberResult& each) {
      take(member, point_of(member, each), &each.model);
    };
    return population;
  }

  std::string label(size_t member) const {
    return label_of(study_.keys, study_.combinations[member]);
  }

  void open_journal() {
    journal_.emplace(options_.out, identity(study_), members_.size(), options_.resume,
                     options_.force);
    for (auto& [member, point] : journal_->points()) {
      // A sweep that was killed right after writing the line did not get here.
      remove_member(member, /*keep_model=*/options_.models > 0 && point.error.empty());
      points_[member] = std::move(point);
      done_[member] = true;
    }
  }

  // Every rank skips the members that the root knows to be done, and prunes by their results.
  void share_done() {
    if (ranks_ == nullptr) return;
    nlohmann::json list = nlohmann::json::array();
    for (size_t i = 0; i < done_.size(); ++i) {
      if (done_[i]) list.push_back({i, points_[i].score, points_[i].pruned_after});
    }
    list = parse_json(ranks_->text_from_root(dump_json(list, -1)));
    for (const auto& each : list) {
      const auto member = each.at(0).get<size_t>();
      done_[member] = true;
      points_[member].score = each.at(1).is_number() ? each.at(1).get<double>() : std::nan("");
      points_[member].pruned_after = each.at(2).get<int64_t>();
    }
  }

  void begins(size_t member) {
    const std::lock_guard lock(taking_);
    if (options_.progress) options_.progress(reported_, members_.size(), label(member), nullptr);
  }

  SweepPoint point_of(size_t member, const MemberResult& each) const {
    return {study_.combinations[member], each.report, each.error,
            each.pruned_after,           each.score,  {}};
  }

  // Takes a result of this process or, without a model, of another rank. Thread-safe.
  void take(size_t member, const SweepPoint& point, const std::vector<std::byte>* model = nullptr) {
    const std::lock_guard lock(taking_);
    points_[member] = point;
    done_[member] = true;
    if (journal_) {
      journal_->append(member, point);
      remove_member(member, /*keep_model=*/options_.models > 0 && point.error.empty());
    } else if (model != nullptr && point.error.empty() && point.pruned_after == 0) {
      keep_best(best_, points_, {member, *model}, options_.models);
    }
    if (options_.progress) options_.progress(reported_, members_.size(), label(member), &point);
    ++reported_;
  }

  // The files for a member's resume are useless once its result is in the journal.
  void remove_member(size_t member, bool keep_model) const {
    const std::filesystem::path folder = member_folder(SweepJournal::members(options_.out), member);
    std::error_code ignored;
    if (!keep_model) {
      std::filesystem::remove_all(folder, ignored);
      return;
    }
    std::filesystem::remove(folder / "checkpoint.safetensors", ignored);
    std::filesystem::remove(folder / "checkpoint.prev.safetensors", ignored);
  }

  void collect(Sweep& result) {
    std::vector<size_t> place(points_.size());
    for (size_t i = 0; i < points_.size(); ++i) {
      if (!done_[i] || points_[i].values.empty()) continue;
      place[i] = result.points.size();
      if (journal_ && options_.models > 0) read_model(i);
      result.points.push_back(points_[i]);
    }
    for (Sweep::Model& each : best_) each.point = place[each.point];
    result.best = std::move(best_);
    result.chosen = choose(result.points);
  }

  void read_model(size_t member) {
    const SweepPoint& point = points_[member];
    if (!point.error.empty() || point.pruned_after > 0) return;
    const auto file =
        member_folder(SweepJournal::members(options_.out), member) / "model.safetensors";
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) return;
    keep_best(best_, points_, {member, read_file(file)}, options_.models);
  }

  Study study_;
  const SweepOptions& options_;
  dist::RankCommunicator* const ranks_;  // null: alone
  std::vector<Member> members_;
  std::optional<SweepJournal> journal_;
  std::vector<SweepPoint> points_;
  std::vector<bool> done_;
  std::vector<Sweep::Model> best_;
  std::mutex taking_;
  size_t reported_ = 0;
};

}  // namespace

Sweep sweep(const std::filesystem::path& config, const std::vector<std::string>& sets,
            const SweepOptions& options) {
  return Running(read_study(config, sets, options), options).run();
}

}  // namespace ridgeline::engine
