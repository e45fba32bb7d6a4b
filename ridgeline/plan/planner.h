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
  bool tune = true;  // measures kernels; false takes them in the table's fixed order
  // Excludes kernels that are not deterministic, and takes the table's fixed order whatever `tune`
  // is: kernels differ in the order of their sums, so a plan chosen by measured times does not
  // repeat bit for bit.
  bool deterministic = false;
  size_t shortlist = 3;  // the number of complete plans that are measured
  double seconds_per_kernel = 0.02;
  // Patterns of kernel names (kernel_patterns.h): a prefix of a name, or a whole name in which '*'
  // stands for any text.
  std::vector<std::string> only;    // if not empty, only kernels that fit one of these are used
  std::vector<std::string> except;  // kernels that fit one of these are not used
  std::vector<std::string>
      pinned;  // a checkpoint's kernels, in order: used again if they still fit

  bool demonstrations = false;  // allows demonstration kernels that `only` does not name

  bool measures() const { return tune && !deterministic; }
  // Measuring on a CPU ends after this many seconds if the thread had a core for less than half of
  // them: the machine is busy, and times measured on it are not worth waiting for.
  double busy_seconds = 5;
  // How often the plan will run, 0 if unknown. Measuring ends when it has taken a tenth of the time
  // that the table's order would need for all these runs, but not before least_tuning.
  int64_t expected_runs = 0;
  double least_tuning = 2;  // seconds
  // Called before each measurement with the number of kernels that have been measured and the
  // number that the plan may use.
  std::function<void(size_t done, size_t all)> measuring;
};

// One kernel at one position, tried or refused.
struct Candidate {
  const Kernel* kernel = nullptr;
  size_t begin = 0;
  Cover cover;          // ops == 0: refused, cover.reason says why
  double seconds = -1;  // -1: not measured
  bool chosen = false;
};

// Counts the work of planning. Each number grows in proportion to the ops of the program.
struct PlanningSteps {
  size_t asked = 0;   // calls of covers()
  size_t looked = 0;  // ops that those examined
  size_t walked = 0;  // ops that the search passed over
};

// Explains how a plan was chosen; `ridgeline plan` prints it.
struct Explanation {
  // Sorted by position, then in table order. For a program of more than kMostExplained ops, kernels
  // for other ops or devices are left out.
  std::vector<Candidate> candidates;
  std::vector<double> shortlist_seconds;  // whole plans, as measured
  // "measured", "cache", "fixed order", "checkpoint", "measured again: ...",
  // "measured in part: ...", "fixed order: ..."
  std::string source;
  bool cut_short = false;  // measuring was ended early: the kernels measured until then competed
  double tuning_seconds = 0;
  PlanningSteps steps;
};
constexpr size_t kMostExplained = 2048;

struct Planned {
  Choices choices;
  Explanation explanation;
};

// Measures seconds. It is an interface so that tests can plan with invented times.
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  virtual double kernel(const Choice& choice) = 0;   // one kernel on its span, or one conversion
  virtual double whole(const Choices& choices) = 0;  // a step of a complete plan
};

// Covers `program` with kernels of `table`: finds shortest paths over (position, formats of live
// values) and measures the best few as complete plans. Throws Error(usage) if nothing covers the
// program, with each kernel tried at the first uncovered op and its reason.
Planned plan_program(const Program& program, const KernelTable& table, Runtime& runtime,
                     const PlanOptions& options, Stopwatch& stopwatch);

// Returns the plan whose kernels have these names, in order; it has no choices if they do not fit.
Planned plan_by_names(const Program& program, const KernelTable& table, Runtime& runtime,
                      const PlanOptions& options, const std::vector<std::string>& names);

std::vector<std::string> kernel_names(const Choices& choices);  // conversions follow from these

// Plans with times measured on the device, which are kept in `cache` if given. If the program has
// collectives, all ranks of the runtime call this together and choose the same kernels.
Planned plan_program(const Program& program, const KernelTable& table, Runtime& runtime,
                     const PlanOptions& options, TuningCache* cache = nullptr);

}  // namespace ridgeline
