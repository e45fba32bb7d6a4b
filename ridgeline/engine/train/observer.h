#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ridgeline/engine/metric.h"

namespace ridgeline::engine {

class Trainer;
struct Evaluation;
struct TrainReport;

// Training since the last point: means over its steps.
struct TrainPoint {
  int64_t step = 0;  // steps made
  double epoch = 0;
  double loss = 0, accuracy = 0;        // accuracy: NaN if the targets are values
  double lr = 0;                        // of the last step
  std::optional<double> gradient_norm;  // of the last step, if clipping computes it
  std::optional<double> loss_scale;     // current, in a run with a loss scale
  int64_t skipped_steps = 0;            // in total; with loss_scale
  double inputs_per_second = 0;
  std::optional<double> limit_fraction;
  double seconds = 0;  // since the start of the process's run
};

struct EvalPoint {
  int64_t step = 0;
  double epoch = 0;
  double loss = 0, accuracy = 0;                     // as in TrainPoint
  std::vector<std::pair<Metric, double>> metrics{};  // all that apply, including loss and accuracy
  bool validation = false;                           // of the validation set; else of the test set
  double seconds = 0;
};

// An activity of the host: `begin` and `seconds` are those of Clock.
struct HostSpan {
  std::string what;  // "start-up", "launch", "evaluate", "checkpoint"
  double begin = 0, seconds = 0;
  int64_t steps = 0;  // of a launch
  double waited = 0;  // seconds of these in which a rank could only wait for others
  int rank = 0;       // spans of other ranks come all at once, before finished()
};

// Observes a run: the metrics file, TensorBoard's events, the trace and the report page are
// observers. Called on the host between launches, by the rank that writes, except for
// report_helper(); an exception ends the run.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void started(const TrainReport&, Trainer&) {}
  virtual void logged(const TrainPoint&) {}
  virtual void evaluated(const EvalPoint&, Trainer&) {}
  virtual void did(const HostSpan&) {}
  // Called after each launch and each evaluation. The run ends normally if any observer returns
  // true.
  virtual bool wants_to_stop() { return false; }
  virtual void finished(const TrainReport&, Trainer&) {}
};

// engine/report makes the pages about a run.

// Writes report.html of a run to `folder` when it ends: curves, confusions, roofline, timeline,
// plan, environment; trace.json beside it. Throws Error(io) at once if the folder cannot be made.
// The curves of a resumed run begin with the points in `metrics` (metrics.jsonl, or "").
std::unique_ptr<TrainObserver> report_observer(const std::filesystem::path& folder,
                                               const std::filesystem::path& metrics);

// For the other ranks of such a run, which take part in the profile of the page.
std::unique_ptr<TrainObserver> report_helper();

// Writes the run's timeline as trace-event JSON when it ends.
std::unique_ptr<TrainObserver> trace_observer(const std::filesystem::path& file);

}  // namespace ridgeline::engine
