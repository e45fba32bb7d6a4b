#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ridgeline/plan/plan.h"

namespace ridgeline {

class TuningCache;

struct PlanOptions {
  bool tune = true;  // measure; else the table's fixed order
  // Leave out rows that are not, and take the table's fixed order whatever `tune` says: rows differ
  // in the order of their sums, so that a plan chosen by times does not repeat bit for bit.
  bool deterministic = false;
  size_t shortlist = 3;  // plans measured whole
  double seconds_per_row = 0.02;
  // Patterns of row names: how a name begins, or with '*' for any text the whole of it.
  std::vector<std::string> only;    // if set: keep rows that fit one of these
  std::vector<std::string> except;  // leave out rows that fit one of these
  std::vector<std::string> pinned;  // row names in order, from a checkpoint: used again if they fit

  bool measures() const { return tune && !deterministic; }
  // Measuring on a CPU ends after so many seconds if this thread had a processor for less than half
  // of them: the machine is busy, and times taken on it are not worth waiting for.
  double busy_seconds = 5;
  // Called before each measurement: how many of the rows that the plan may use have been priced.
  std::function<void(size_t done, size_t all)> measuring;
};

// One row at one position, tried or refused.
struct Candidate {
  const Impl* row = nullptr;
  size_t begin = 0;
  Cover cover;          // ops == 0: refused, cover.reason says why
  double seconds = -1;  // -1: not measured
  bool chosen = false;
};

// What planning has done, counted: each grows in proportion to the ops of the program.
struct PlanningSteps {
  size_t asked = 0;   // calls of covers()
  size_t looked = 0;  // ops that those looked at
  size_t walked = 0;  // ops that the search went over
};

// How a plan came about: what `ridgeline plan` prints.
struct Explanation {
  // By position, then in table order. A program of more than kMostExplained ops has none of the
  // rows that are for another op or device.
  std::vector<Candidate> candidates;
  std::vector<double> shortlist_seconds;  // whole plans, as measured
  // "measured", "cache", "fixed order", "checkpoint", "measured again: ...", "fixed order: ..."
  std::string source;
  bool cut_short = false;  // measuring was ended early: the plan is the table's order
  double tuning_seconds = 0;
  PlanningSteps steps;
};
constexpr size_t kMostExplained = 2048;

struct Planned {
  Choices choices;
  Explanation explanation;
};

// Seconds of one row on the span it covers, or of one conversion; injected so that tests can plan
// over invented times.
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  virtual double row(const Choice& choice) = 0;
  virtual double whole(const Choices& choices) = 0;
};

// Covers `program` with rows of `table`: a shortest path over (position, formats of live values),
// the best few measured whole. Throws Error(usage) when nothing covers the program, with each row
// tried at the first uncovered op and its reason.
Planned plan_program(const Program& program, const Table& table, Runtime& runtime,
                     const PlanOptions& options, Stopwatch& stopwatch);

// The plan whose rows have these names, in order; no choices when they do not fit.
Planned plan_by_names(const Program& program, const Table& table, Runtime& runtime,
                      const PlanOptions& options, const std::vector<std::string>& names);

std::vector<std::string> row_names(const Choices& choices);  // conversions follow from these

// The same with measured times, kept in `cache` when given. All ranks of the runtime choose alike
// when the program has collectives in it; they then call this together.
Planned plan_program(const Program& program, const Table& table, Runtime& runtime,
                     const PlanOptions& options, TuningCache* cache = nullptr);

}  // namespace ridgeline
