#include "ridgeline/plan/planner.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "ridgeline/plan/cache.h"
#include "ridgeline/plan/row_patterns.h"
#include "ridgeline/plan/search.h"
#include "ridgeline/plan/stopwatch.h"
#include "ridgeline/plan/together.h"

namespace ridgeline {
namespace {

// Whole plans closer than this are a tie; the table's order then decides, so that noise does not.
constexpr double kTie = 0.02;

// A kept plan whose time is off by more than this factor was chosen in another state of the machine
// (busy then, or busy now). Differences below the second figure are the clock's and the threads'.
constexpr double kStaleFactor = 2;
constexpr double kStaleSeconds = 50e-6;

constexpr const char* kOtherDevice = "for another device";
constexpr const char* kNotAsked = "not asked for";
constexpr const char* kUnwanted = "left out on request";
constexpr const char* kOtherOp = "the next op";  // how rows of other ops refuse

// Why the options leave a row out, or empty.
std::string excluded(const Impl& row, const Runtime& runtime, const PlanOptions& options) {
  if (row.target != runtime.device().kind) return kOtherDevice;
  if (options.deterministic && !row.traits.deterministic) return "not deterministic";
  if (!options.only.empty() && !fits_any(row.name, options.only)) return kNotAsked;
  if (fits_any(row.name, options.except)) return kUnwanted;
  return {};
}

// A row may leave a value unwritten only if nobody outside its span would look at it.
std::string unwritten_but_needed(const Program& program, const Cover& cover, size_t begin) {
  for (const ValueId id : cover.skips) {
    const ValueInfo& info = program.info(id);
    if (info.role != Role::temp || last_read(program, id) >= int64_t(begin + cover.ops)) {
      return fmt::format("does not write {}, which is read later", info.name);
    }
  }
  return {};
}

// cuDNN builds, and in part compiles, what it answers for: a tenth of a second to one, each.
bool is_slow_to_ask(const Impl& row) { return row.name.find(".cudnn") != std::string::npos; }

// Which of the rows that are slow to ask are asked.
enum class Slow {
  all,         // their times will be compared
  where_bare,  // where no row before them covers the op: the table's order decides
};

// Asks every row at every position; slow ones as `slow` says, and those that are `named`.
std::vector<Candidate> ask_all(const Program& program, const Table& table, const Runtime& runtime,
                               const PlanOptions& options, Slow slow,
                               const std::vector<std::string>& named = {}) {
  std::vector<Candidate> all;
  for (size_t position = 0; position < program.ops.size(); ++position) {
    bool bare = true;
    for (const Impl& row : table) {
      if (!row.covers) continue;
      Candidate candidate{&row, position, {}, -1, false};
      std::string why = excluded(row, runtime, options);
      if (why.empty() && slow == Slow::where_bare && !bare && is_slow_to_ask(row) &&
          std::ranges::find(named, row.name) == named.end()) {
        why = "not asked, for a row before it serves and none are compared";
      }
      if (why.empty()) {
        candidate.cover = row.covers(Rest{program, position, runtime});
        if (candidate.cover.ops > 0) why = unwritten_but_needed(program, candidate.cover, position);
      }
      if (!why.empty()) candidate.cover = Cover::no(why);
      bare &= candidate.cover.ops == 0 || row.traits.fallback;
      all.push_back(std::move(candidate));
    }
  }
  return all;
}

Options usable(const Program& program, const Table& table, const std::vector<Candidate>& all,
               bool with_fallbacks) {
  Options options;
  options.at.resize(program.ops.size());
  for (const Candidate& candidate : all) {
    if (candidate.cover.ops > 0) options.at[candidate.begin].push_back(candidate);
  }
  if (!with_fallbacks) {
    for (auto& here : options.at) {
      const auto real = [](const Candidate& c) { return !c.row->traits.fallback; };
      if (std::any_of(here.begin(), here.end(), real)) {
        std::erase_if(here, [&](const Candidate& c) { return !real(c); });
      }
    }
  }
  for (const Impl& row : table) {
    if (row.converts) options.conversions.push_back(&row);
  }
  return options;
}

// For a plan by the table's order.
std::vector<Candidate> ask_for_order(const Program& program, const Table& table,
                                     const Runtime& runtime, const PlanOptions& options) {
  auto all = ask_all(program, table, runtime, options, Slow::where_bare);
  if (!first_cover(program, usable(program, table, all, true)).empty()) return all;
  return ask_all(program, table, runtime, options, Slow::all);
}

// For choose().
std::vector<Candidate> ask(const Program& program, const Table& table, const Runtime& runtime,
                           const PlanOptions& options) {
  if (!options.pinned.empty()) {
    auto all = ask_all(program, table, runtime, options, Slow::where_bare, options.pinned);
    const Options usable_ones = usable(program, table, all, true);
    if (!named_cover(program, usable_ones, options.pinned).empty()) return all;
  }
  return options.measures() ? ask_all(program, table, runtime, options, Slow::all)
                            : ask_for_order(program, table, runtime, options);
}

[[noreturn]] void throw_uncovered(const Program& program, const Options& options,
                                  const std::vector<Candidate>& all) {
  const size_t position = stuck_at(program, options);
  std::string reasons;
  int not_asked = 0;
  for (const Candidate& candidate : all) {
    const std::string& why = candidate.cover.reason;
    if (candidate.begin != position || why.empty() || why == kOtherDevice) continue;
    const bool left_out = why == kNotAsked || why == kUnwanted;
    not_asked += left_out;
    if (left_out || why.starts_with(kOtherOp)) continue;
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", candidate.row->name, why);
  }
  if (not_asked > 0) {
    reasons += fmt::format("{}--rows leaves out {} others; ask for more of them",
                           reasons.empty() ? "" : "; ", not_asked);
  }
  throw_error(ErrorKind::usage, "no row computes '{}' in {} here ({})",
              describe(program.ops[position]), name(program.precision),
              reasons.empty() ? "no row is for this op" : reasons);
}

// Positions of the rows in the table: the fixed order of preference as a comparable thing.
std::vector<size_t> preference(const Choices& choices, const Table& table) {
  std::vector<size_t> order;
  for (const Choice& choice : choices) order.push_back(size_t(choice.row - table.data()));
  return order;
}

Choices pick_measured(const std::vector<Choices>& shortlist, const Table& table,
                      Stopwatch& stopwatch, Explanation& explanation) {
  if (shortlist.size() == 1) return shortlist.front();
  for (const Choices& choices : shortlist) {
    explanation.shortlist_seconds.push_back(stopwatch.whole(choices));
  }
  const auto& seconds = explanation.shortlist_seconds;
  const double best = *std::min_element(seconds.begin(), seconds.end());
  const Choices* picked = nullptr;
  for (size_t i = 0; i < shortlist.size(); ++i) {
    if (seconds[i] > best * (1 + kTie)) continue;
    if (picked == nullptr || preference(shortlist[i], table) < preference(*picked, table)) {
      picked = &shortlist[i];
    }
  }
  return *picked;
}

void mark_chosen(Explanation& explanation, const Choices& choices) {
  for (const Choice& choice : choices) {
    for (Candidate& candidate : explanation.candidates) {
      candidate.chosen |=
          choice.converted < 0 && candidate.row == choice.row && candidate.begin == choice.begin;
    }
  }
}

Choices choose(const Program& program, const Table& table, const PlanOptions& options,
               Stopwatch& stopwatch, Explanation& explanation) {
  const Options everything = usable(program, table, explanation.candidates, true);
  if (!options.pinned.empty()) {
    explanation.source = "checkpoint";
    Choices choices = named_cover(program, everything, options.pinned);
    if (!choices.empty()) return choices;
  }
  Options real = usable(program, table, explanation.candidates, false);
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
  std::map<std::pair<const Impl*, size_t>, double> seconds;
  const Cost cost = [&](const Choice& choice) {
    const double time = stopwatch.row(choice);
    if (choice.converted < 0) seconds[{choice.row, choice.begin}] = time;
    return time;
  };
  auto shortlist = cheapest_covers(program, real, cost, std::max<size_t>(1, options.shortlist));
  // The cheapest few sums are often near copies of one another, and all wrong in the same way (two
  // libraries' threads in each other's way, caches warm only in isolation). The fixed order is the
  // one plan that owes nothing to those sums, so it is always measured whole with them.
  const auto same = [&](const Choices& other) {
    return preference(other, table) == preference(fixed, table);
  };
  if (std::none_of(shortlist.begin(), shortlist.end(), same)) {
    for (Choice& choice : fixed) choice.seconds = cost(choice);
    shortlist.push_back(std::move(fixed));
  }
  for (Candidate& candidate : explanation.candidates) {
    const auto found = seconds.find({candidate.row, candidate.begin});
    if (found != seconds.end()) candidate.seconds = found->second;
  }
  return pick_measured(shortlist, table, stopwatch, explanation);
}

// The times that the cache has of rows, for whoever reads the explanation.
void put_kept_times(const Program& program, const TuningCache& cache, Planned& planned) {
  for (Candidate& candidate : planned.explanation.candidates) {
    if (candidate.cover.ops == 0) continue;
    const size_t end = candidate.begin + candidate.cover.ops;
    const auto seconds =
        cache.row_seconds(candidate.row->name + " | " + signature(program, candidate.begin, end));
    if (!seconds) continue;
    candidate.seconds = *seconds;
    for (Choice& choice : planned.choices) {
      const bool same = choice.row == candidate.row && choice.begin == candidate.begin;
      if (same && choice.converted < 0) choice.seconds = *seconds;
    }
  }
}

bool is_stale(double seconds, double kept) {
  return std::abs(seconds - kept) > kStaleSeconds &&
         std::max(seconds, kept) > kStaleFactor * std::min(seconds, kept);
}

// The plan that the cache has, if it still fits and still takes about the time it took; else none,
// and `source` says why when it is the time.
std::optional<Planned> kept_plan(const Program& program, const Table& table, Runtime& runtime,
                                 const PlanOptions& options, const TuningCache& cache,
                                 DeviceStopwatch& stopwatch, std::string& source) {
  const auto known = cache.plan(plan_key(program, options));
  if (!known) return std::nullopt;
  PlanOptions pinned = options;
  pinned.pinned = known->rows;
  Planned planned = plan_program(program, table, runtime, pinned, stopwatch);
  if (planned.explanation.source != "checkpoint") return std::nullopt;
  if (is_stale(stopwatch.glance(planned.choices), known->seconds)) {
    const double seconds = stopwatch.whole(planned.choices);
    if (is_stale(seconds, known->seconds)) {
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

Planned plan_program(const Program& program, const Table& table, Runtime& runtime,
                     const PlanOptions& options, Stopwatch& stopwatch) {
  const auto start = std::chrono::steady_clock::now();
  Planned planned;
  planned.explanation.candidates = ask(program, table, runtime, options);
  planned.choices = choose(program, table, options, stopwatch, planned.explanation);
  mark_chosen(planned.explanation, planned.choices);
  planned.explanation.tuning_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return planned;
}

Planned plan_in_order(const Program& program, const Table& table, Runtime& runtime,
                      PlanOptions options,
                      const std::function<void(std::vector<Candidate>&)>& narrow) {
  options.tune = false;
  DeviceStopwatch unused(program, runtime, options.seconds_per_row, nullptr);
  Planned planned;
  // All rows, slow ones too: what `narrow` takes away is not known before.
  planned.explanation.candidates = ask_all(program, table, runtime, options, Slow::all);
  narrow(planned.explanation.candidates);
  planned.choices = choose(program, table, options, unused, planned.explanation);
  mark_chosen(planned.explanation, planned.choices);
  return planned;
}

// What was asked for is part of the question, so it is part of the key.
std::string plan_key(const Program& program, const PlanOptions& options) {
  std::string key = signature(program);
  for (const std::string& row : options.only) key += " only " + row;
  for (const std::string& row : options.except) key += " except " + row;
  return key;
}

Planned plan_by_names(const Program& program, const Table& table, Runtime& runtime,
                      const PlanOptions& options, const std::vector<std::string>& names) {
  Planned planned;
  planned.explanation.candidates =
      ask_all(program, table, runtime, options, Slow::where_bare, names);
  planned.explanation.source = "checkpoint";
  planned.choices =
      named_cover(program, usable(program, table, planned.explanation.candidates, true), names);
  mark_chosen(planned.explanation, planned.choices);
  return planned;
}

std::vector<std::string> row_names(const Choices& choices) {
  std::vector<std::string> names;
  for (const Choice& choice : choices) {
    if (choice.converted < 0) names.push_back(choice.row->name);
  }
  return names;
}

Planned plan_program(const Program& program, const Table& table, Runtime& runtime,
                     const PlanOptions& options, TuningCache* cache) {
  Communicator* ranks = runtime.ranks();
  if (ranks != nullptr && ranks->size() > 1 && has_collectives(program)) {
    return plan_together(program, table, runtime, options, cache, *ranks);
  }
  DeviceStopwatch stopwatch(program, runtime, options.seconds_per_row, cache);
  if (cache == nullptr || !options.measures() || !options.pinned.empty()) {
    return plan_program(program, table, runtime, options, stopwatch);
  }
  std::string source;
  if (auto kept = kept_plan(program, table, runtime, options, *cache, stopwatch, source)) {
    return std::move(*kept);
  }
  if (!source.empty()) stopwatch.measure_anew();
  Planned planned = plan_program(program, table, runtime, options, stopwatch);
  if (!source.empty()) planned.explanation.source = source;
  cache->set_plan(plan_key(program, options),
                  {row_names(planned.choices), stopwatch.whole(planned.choices)});
  cache->save();
  return planned;
}

}  // namespace ridgeline
