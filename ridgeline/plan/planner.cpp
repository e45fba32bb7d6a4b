#include "ridgeline/plan/planner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "ridgeline/plan/busy_clock.h"
#include "ridgeline/plan/cache.h"
#include "ridgeline/plan/candidates.h"
#include "ridgeline/plan/collective_planner.h"
#include "ridgeline/plan/search.h"
#include "ridgeline/plan/stopwatch.h"

namespace ridgeline {
namespace {

// Whole plans closer than this count as equal; the table's order then decides, not noise.
constexpr double kTie = 0.02;

// A kept plan whose time differs by more than this factor was chosen in another state of the
// machine (busy then, or busy now). Smaller differences are noise of the clock and the threads.
constexpr double kStaleFactor = 1.5;
constexpr double kStaleSeconds = 50e-6;

[[noreturn]] void throw_uncovered(const Program& program, const Options& options,
                                  const std::vector<Candidate>& all) {
  const size_t position = stuck_at(program, options);
  std::string reasons;
  int not_asked = 0;
  for (const Candidate& candidate : all) {
    const std::string& why = candidate.cover.reason;
    if (candidate.begin != position || why.empty() || why.starts_with(kForOthers)) {
      continue;
    }
    const bool left_out = why == kNotAsked || why == kUnwanted || why == kDemonstration;
    not_asked += left_out;
    if (left_out || why.starts_with(kOtherOp)) continue;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", candidate.kernel->name, why);
  }
  if (not_asked > 0) {
    reasons += fmt::format("{}--kernels leaves out {} others; ask for more of them",
                           reasons.empty() ? "" : "; ", not_asked);
  }
  throw_error(ErrorKind::usage, "no kernel computes '{}' in {} here ({})",
              describe(program.ops[position]), name(program.precision),
              reasons.empty() ? "no kernel is for this op" : reasons);
}

// Returns the positions of the kernels in the table, which makes the fixed order comparable.
std::vector<size_t> preference(const Choices& choices, const KernelTable& table) {
  std::vector<size_t> order;
  for (const Choice& choice : choices) order.push_back(size_t(choice.kernel - table.data()));
  return order;
}

// Returns the fastest plan, and of plans that count as equal the first in the table's order.
size_t fastest(const std::vector<Choices>& shortlist, const KernelTable& table,
               const std::vector<double>& seconds) {
  const double best = *std::min_element(seconds.begin(), seconds.end());
  std::optional<size_t> picked;
  for (size_t i = 0; i < shortlist.size(); ++i) {
    if (seconds[i] > best * (1 + kTie)) continue;
    if (!picked || preference(shortlist[i], table) < preference(shortlist[*picked], table)) {
      picked = i;
    }
  }
  return *picked;
}

Choices pick_measured(const std::vector<Choices>& shortlist, const KernelTable& table,
                      Stopwatch& stopwatch, Explanation& explanation,
                      const std::function<void()>& go_on) {
  if (shortlist.size() == 1) return shortlist.front();
  std::vector<double>& seconds = explanation.shortlist_seconds;
  for (const Choices& choices : shortlist) {
    go_on();
    seconds.push_back(stopwatch.whole(choices));
  }
  // Another process may have disturbed the one measurement of the plan that the table prefers.
  // Before a plan of other kernels replaces it, both are measured again, and the smaller time of
  // each counts.
  const size_t picked = fastest(shortlist, table, seconds);
  const size_t preferred = fastest(shortlist, table, std::vector<double>(shortlist.size(), 1.0));
  if (picked == preferred) return shortlist[picked];
  for (const size_t i : {preferred, picked}) {
    go_on();
    seconds[i] = std::min(seconds[i], stopwatch.whole(shortlist[i]));
  }
  return shortlist[fastest(shortlist, table, seconds)];
}

using Place = std::pair<const Kernel*, size_t>;  // a kernel and the op it begins at

void mark_chosen(Explanation& explanation, const Choices& choices) {
  std::set<Place> chosen;
  for (const Choice& choice : choices) {
    if (choice.converted < 0) chosen.emplace(choice.kernel, choice.begin);
  }
  for (Candidate& candidate : explanation.candidates) {
    candidate.chosen |= chosen.contains({candidate.kernel, candidate.begin});
  }
}

struct OutOfPatience {
  const char* why;
};

// On an idle machine a measuring thread has a processor for more than this share of its time, even
// if it waits for others of its pool; on a busy machine for less.
constexpr double kIdleShare = 0.5;

constexpr double kTuningShare = 0.1;  // of the time of PlanOptions::expected_runs

// Returns the fastest of the cheapest few covers and of the fixed order, all measured as a whole.
Choices choose_measured(const Program& program, const KernelTable& table, const Options& real,
                        Choices fixed, const Runtime& runtime, const PlanOptions& options,
                        Stopwatch& stopwatch, Explanation& explanation) {
  const BusyClock clock;
  const bool cpu = runtime.device().is_host();  // waiting for a GPU needs no processor
  size_t all = 0, done = 0;
  for (const auto& here : real.at) all += here.size();
  double patience = std::numeric_limits<double>::infinity();
  if (options.expected_runs > 0) {
    const double run = double(options.expected_runs) * stopwatch.whole(fixed);
    patience = std::max(options.least_tuning, kTuningShare * run);
  }
  const auto go_on = [&] {
    if (cpu && clock.seconds() > options.busy_seconds && clock.share() < kIdleShare) {
      throw OutOfPatience{"the machine is too busy to measure on"};
    }
    if (clock.seconds() > patience) throw OutOfPatience{"the run is too short to measure more"};
    if (options.measuring) options.measuring(done, all);
  };
  std::map<Place, double> seconds;
  const Cost cost = [&](const Choice& choice) {
    go_on();
    const double time = stopwatch.kernel(choice);
    if (choice.converted < 0) {
      seconds[{choice.kernel, choice.begin}] = time;
      done = seconds.size();
    }
    return time;
  };
  auto shortlist = cheapest_covers(program, real, cost, std::max<size_t>(1, options.shortlist));
  // The cheapest few sums are often near copies of one another, and all wrong in the same way (two
  // libraries' threads disturb each other, caches are warm only in isolation). The fixed order is
  // the one plan that does not depend on those sums, so it is always measured as a whole with them.
  const auto same = [&](const Choices& other) {
    return preference(other, table) == preference(fixed, table);
  };
  if (std::none_of(shortlist.begin(), shortlist.end(), same)) {
    for (Choice& choice : fixed) choice.seconds = cost(choice);
    shortlist.push_back(std::move(fixed));
  }
  for (Candidate& candidate : explanation.candidates) {
    const auto found = seconds.find({candidate.kernel, candidate.begin});
    if (found != seconds.end()) candidate.seconds = found->second;
  }
  return pick_measured(shortlist, table, stopwatch, explanation, go_on);
}

Choices choose(const Program& program, const KernelTable& table, const Runtime& runtime,
               const PlanOptions& options, Stopwatch& stopwatch, Explanation& explanation) {
  const Options everything =
      usable(program, table, explanation.candidates, true, explanation.steps);
  if (!options.pinned.empty()) {
    explanation.source = "checkpoint";
    Choices choices = named_cover(program, everything, options.pinned);
    if (!choices.empty()) return choices;
  }
  Options real = usable(program, table, explanation.candidates, false, explanation.steps);
  if (first_cover(program, real).empty()) real = everything;
  Choices fixed = first_cover(program, real);
  if (fixed.empty() && !program.ops.empty()) {
    throw_uncovered(program, everything, explanation.candidates);
  }
  if (!options.measures()) {
    explanation.source = "fixed order";
    return fixed;
  }
  explanation.source = "measured";
  try {
    return choose_measured(program, table, real, fixed, runtime, options, stopwatch, explanation);
  } catch (const OutOfPatience& ended) {
    explanation.source = fmt::format("fixed order: {}", ended.why);
    explanation.cut_short = true;
    return fixed;
  }
}

// Adds the cached times of kernels to the explanation.
void put_kept_times(const Program& program, const TuningCache& cache, Planned& planned) {
  std::map<Place, Choice*> chosen;
  for (Choice& choice : planned.choices) {
    if (choice.converted < 0) chosen[{choice.kernel, choice.begin}] = &choice;
  }
  for (Candidate& candidate : planned.explanation.candidates) {
    if (candidate.cover.ops == 0) continue;
    const size_t end = candidate.begin + candidate.cover.ops;
    const auto seconds = cache.kernel_seconds(candidate.kernel->name + " | " +
                                              signature(program, candidate.begin, end));
    if (!seconds) continue;
    candidate.seconds = *seconds;
    const auto choice = chosen.find({candidate.kernel, candidate.begin});
    if (choice != chosen.end()) choice->second->seconds = *seconds;
  }
}

bool is_stale(double seconds, double kept) {
  return std::abs(seconds - kept) > kStaleSeconds &&
         std::max(seconds, kept) > kStaleFactor * std::min(seconds, kept);
}

// Returns the cached plan if it still fits and still takes about the same time; else nothing, and
// `source` says why if the time is the reason.
std::optional<Planned> kept_plan(const Program& program, const KernelTable& table, Runtime& runtime,
                                 const PlanOptions& options, const TuningCache& cache,
                                 DeviceStopwatch& stopwatch, std::string& source) {
  const auto known = cache.plan(plan_key(program, options));
  if (!known) return std::nullopt;
  PlanOptions pinned = options;
  pinned.pinned = known->kernels;
  Planned planned = plan_program(program, table, runtime, pinned, stopwatch);
  if (planned.explanation.source != "checkpoint") return std::nullopt;
  if (is_stale(stopwatch.glance(planned.choices), known->seconds)) {
    const BusyClock clock;
    const double seconds = stopwatch.whole(planned.choices);
    // If a plan is slow because the machine is busy now, measuring others on it would not help.
    const bool busy = runtime.device().is_host() && clock.share() < kIdleShare;
    if (is_stale(seconds, known->seconds) && !(busy && seconds > known->seconds)) {
      source = fmt::format("measured again: the kept plan took {:.0f} us a step, not {:.0f}",
                           1e6 * seconds, 1e6 * known->seconds);
      return std::nullopt;
    }
  }
  planned.explanation.source = "cache";
  put_kept_times(program, cache, planned);
  return planned;
}

}  // namespace

Planned plan_program(const Program& program, const KernelTable& table, Runtime& runtime,
                     const PlanOptions& options, Stopwatch& stopwatch) {
  const auto start = std::chrono::steady_clock::now();
  Planned planned;
  planned.explanation.candidates =
      ask_for(program, table, runtime, options, planned.explanation.steps);
  planned.choices = choose(program, table, runtime, options, stopwatch, planned.explanation);
  mark_chosen(planned.explanation, planned.choices);
  planned.explanation.tuning_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return planned;
}

Planned plan_in_order(const Program& program, const KernelTable& table, Runtime& runtime,
                      PlanOptions options,
                      const std::function<void(std::vector<Candidate>&)>& narrow) {
  options.tune = false;
  DeviceStopwatch unused(program, runtime, options.seconds_per_kernel, nullptr);
  Planned planned;
  // All kernels are asked, slow ones too: `narrow` may refuse any of them, and ranks compare all.
  planned.explanation.candidates = ask_all(program, table, runtime, options, Slow::all,
                                           planned.explanation.steps, {}, /*every=*/true);
  narrow(planned.explanation.candidates);
  planned.choices = choose(program, table, runtime, options, unused, planned.explanation);
  mark_chosen(planned.explanation, planned.choices);
  return planned;
}

// The options change the choice of kernels, so they are part of the key.
std::string plan_key(const Program& program, const PlanOptions& options) {
  std::string key = signature(program);
  for (const std::string& kernel : options.only) key += " only " + kernel;
  for (const std::string& kernel : options.except) key += " except " + kernel;
  return key;
}

Planned plan_by_names(const Program& program, const KernelTable& table, Runtime& runtime,
                      const PlanOptions& options, const std::vector<std::string>& names) {
  Planned planned;
  PlanningSteps& steps = planned.explanation.steps;
  planned.explanation.candidates =
      ask_all(program, table, runtime, options, Slow::where_bare, steps, names);
  planned.explanation.source = "checkpoint";
  planned.choices = named_cover(
      program, usable(program, table, planned.explanation.candidates, true, steps), names);
  mark_chosen(planned.explanation, planned.choices);
  return planned;
}

std::vector<std::string> kernel_names(const Choices& choices) {
  std::vector<std::string> names;
  for (const Choice& choice : choices) {
    if (choice.converted < 0) names.push_back(choice.kernel->name);
  }
  return names;
}

Planned plan_program(const Program& program, const KernelTable& table, Runtime& runtime,
                     const PlanOptions& options, TuningCache* cache) {
  Communicator* ranks = runtime.ranks();
  if (ranks != nullptr && ranks->size() > 1 && has_collectives(program)) {
    return plan_collectively(program, table, runtime, options, cache, *ranks);
  }
  DeviceStopwatch stopwatch(program, runtime, options.seconds_per_kernel, cache);
  if (cache == nullptr || !options.measures() || !options.pinned.empty()) {
    return plan_program(program, table, runtime, options, stopwatch);
  }
  std::string source;
  if (auto kept = kept_plan(program, table, runtime, options, *cache, stopwatch, source)) {
    return std::move(*kept);
  }
  if (!source.empty()) stopwatch.measure_anew();
  Planned planned = plan_program(program, table, runtime, options, stopwatch);
  if (planned.explanation.cut_short) {
    cache->save();  // the next start continues from these times
    return planned;
  }
  if (!source.empty()) planned.explanation.source = source;
  cache->set_plan(plan_key(program, options),
                  {kernel_names(planned.choices), stopwatch.whole(planned.choices)});
  cache->save();
  return planned;
}

}  // namespace ridgeline
