#include "ridgeline/plan/tune.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "ridgeline/plan/busy_clock.h"

namespace ridgeline {
namespace {

// Whole plans closer than this count as equal; the table's order then decides, not noise.
constexpr double kTie = 0.02;

constexpr double kTuningShare = 0.1;  // of the time of PlanOptions::expected_runs

// Measures kernels, each once, until its patience ends.
class Measurements {
 public:
  Measurements(const Runtime& runtime, const PlanOptions& options, Stopwatch& stopwatch)
      : cpu_(runtime.device().is_host()), options_(options), stopwatch_(stopwatch) {}

  // Ends measuring after a share of a run whose steps take this long.
  void limit_by(double seconds_per_step) {
    const double run = double(options_.expected_runs) * seconds_per_step;
    patience_ = std::max(options_.least_tuning, kTuningShare * run);
  }

  // Returns why measuring has ended, or null if it goes on.
  const char* ended() {
    if (ended_ != nullptr) return ended_;
    // Waiting for a GPU needs no processor.
    if (cpu_ && clock_.seconds() > options_.busy_seconds && clock_.share() < kIdleShare) {
      ended_ = "the machine is too busy to measure on";
    } else if (clock_.seconds() > patience_) {
      ended_ = "the run is too short to measure more";
    } else if (options_.measuring) {
      options_.measuring(seconds_.size(), all_);
    }
    return ended_;
  }

  void expect(size_t all) { all_ = all; }
  bool has(const Kernel* kernel, size_t begin) const { return seconds_.contains({kernel, begin}); }

  double seconds(const Choice& choice) {
    if (choice.converted >= 0) return stopwatch_.kernel(choice);
    const auto found = seconds_.find({choice.kernel, choice.begin});
    if (found != seconds_.end()) return found->second;
    return seconds_[{choice.kernel, choice.begin}] = stopwatch_.kernel(choice);
  }

  void put_into(std::vector<Candidate>& candidates) const {
    for (Candidate& candidate : candidates) {
      const auto found = seconds_.find({candidate.kernel, candidate.begin});
      if (found != seconds_.end()) candidate.seconds = found->second;
    }
  }

 private:
  const BusyClock clock_;
  const bool cpu_;
  const PlanOptions& options_;
  Stopwatch& stopwatch_;
  double patience_ = std::numeric_limits<double>::infinity();
  const char* ended_ = nullptr;
  size_t all_ = 0;
  std::map<std::pair<const Kernel*, size_t>, double> seconds_;  // by the op that they begin at
};

// Returns what a search can take, except conversions, the choices that could save the most time
// first: those whose ops take the longest with the kernels of `fixed`.
Choices by_possible_gain(const Program& program, const Options& candidates, const Choices& fixed) {
  Choices reached;
  cheapest_covers(
      program, candidates,
      [&](const Choice& choice) {
        if (choice.converted < 0) reached.push_back(choice);
        return 0.0;
      },
      1);
  std::vector<double> until(program.ops.size() + 1);  // the seconds of the ops before each
  for (const Choice& choice : fixed) {
    for (size_t op = choice.begin; op < choice.end; ++op) {
      until[op + 1] = choice.seconds / double(choice.end - choice.begin);
    }
  }
  for (size_t op = 0; op < program.ops.size(); ++op) until[op + 1] += until[op];
  std::ranges::stable_sort(reached, std::greater(), [&](const Choice& choice) {
    return until[choice.end] - until[choice.begin];
  });
  return reached;
}

// Returns the positions of the kernels in the table, which makes the fixed order comparable.
std::vector<size_t> preference(const Choices& choices, const KernelTable& table) {
  std::vector<size_t> order;
  for (const Choice& choice : choices) order.push_back(size_t(choice.kernel - table.data()));
  return order;
}

// Returns the fastest of the plans with a time, and of plans that count as equal the first in the
// table's order.
size_t fastest(const std::vector<Choices>& shortlist, const KernelTable& table,
               const std::vector<double>& seconds) {
  const double best = *std::ranges::min_element(seconds);
  std::optional<size_t> picked;
  for (size_t i = 0; i < seconds.size(); ++i) {
    if (seconds[i] > best * (1 + kTie)) continue;
    if (!picked || preference(shortlist[i], table) < preference(shortlist[*picked], table)) {
      picked = i;
    }
  }
  return *picked;
}

// Measures the plans as a whole, the first two in any case, and returns the fastest.
Choices pick_fastest(const std::vector<Choices>& shortlist, const KernelTable& table,
                     Stopwatch& stopwatch, Measurements& measurements,
                     std::vector<double>& seconds) {
  if (shortlist.size() == 1) return shortlist.front();
  for (const Choices& choices : shortlist) {
    if (measurements.ended() != nullptr && seconds.size() >= 2) break;
    seconds.push_back(stopwatch.whole(choices));
  }
  // Another process may have disturbed the one measurement of the plan that the table prefers.
  // Before a plan of other kernels replaces it, both are measured again, and the smaller time of
  // each counts.
  const size_t picked = fastest(shortlist, table, seconds);
  const size_t preferred = fastest(shortlist, table, std::vector<double>(seconds.size(), 1.0));
  if (picked == preferred || measurements.ended() != nullptr) return shortlist[picked];
  for (const size_t i : {preferred, picked}) {
    seconds[i] = std::min(seconds[i], stopwatch.whole(shortlist[i]));
  }
  return shortlist[fastest(shortlist, table, seconds)];
}

}  // namespace

Choices tune(const Program& program, const KernelTable& table, const Options& candidates,
             Choices fixed, const Runtime& runtime, const PlanOptions& options,
             Stopwatch& stopwatch, Explanation& explanation) {
  Measurements measurements(runtime, options, stopwatch);
  size_t all = 0;
  for (const auto& here : candidates.at) all += here.size();
  measurements.expect(all);
  if (options.expected_runs > 0) measurements.limit_by(stopwatch.whole(fixed));
  for (Choice& choice : fixed) {
    if (const char* why = measurements.ended()) {
      measurements.put_into(explanation.candidates);
      explanation.source = fmt::format("fixed order: {}", why);
      explanation.cut_short = true;
      return fixed;
    }
    choice.seconds = measurements.seconds(choice);
  }
  for (const Choice& choice : by_possible_gain(program, candidates, fixed)) {
    if (measurements.ended() != nullptr) break;
    measurements.seconds(choice);
  }
  Options measured = candidates;
  size_t count = std::max<size_t>(1, options.shortlist);
  if (measurements.ended() != nullptr) {
    count = 1;
    for (auto& here : measured.at) {
      std::erase_if(here, [&](const Candidate& c) { return !measurements.has(c.kernel, c.begin); });
    }
  }
  auto shortlist = cheapest_covers(
      program, measured, [&](const Choice& choice) { return measurements.seconds(choice); }, count);
  measurements.put_into(explanation.candidates);
  // The cheapest few sums are often near copies of one another, and all wrong in the same way (two
  // libraries' threads disturb each other, caches are warm only in isolation). The fixed order is
  // the one plan that does not depend on those sums, so it is always measured as a whole with them.
  const auto same = [&](const Choices& other) {
    return preference(other, table) == preference(fixed, table);
  };
  if (std::ranges::none_of(shortlist, same)) {
    shortlist.insert(shortlist.begin() + (shortlist.empty() ? 0 : 1), std::move(fixed));
  }
  Choices chosen =
      pick_fastest(shortlist, table, stopwatch, measurements, explanation.shortlist_seconds);
  explanation.cut_short = measurements.ended() != nullptr;
  explanation.source = explanation.cut_short
                           ? fmt::format("measured in part: {}", measurements.ended())
                           : "measured";
  return chosen;
}

}  // namespace ridgeline
