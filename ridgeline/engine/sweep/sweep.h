#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ridgeline/engine/population/population.h"
#include "ridgeline/engine/report/chart.h"
#include "ridgeline/engine/train/train.h"

namespace ridgeline::engine {

struct SweepPoint {
  std::vector<std::string> values;  // of the swept keys
  TrainReport report;
  std::string error;         // set if the run failed (a NaN loss); its report is then empty
  int64_t pruned_after = 0;  // epochs after which it was pruned; 0: it was not
  double score = 0;          // combinations are compared by it, larger is better; NaN: none
  std::string kept_report;   // the report as JSON, for a point of another process
};

struct SweepOptions {
  std::filesystem::path data;           // --data
  std::function<void(Config&)> adjust;  // flags that apply to every run (device, threads)
  bool one_by_one = false;              // with all threads, or ranks, each; else side by side
  std::optional<HalvingOptions> prune{};
  // The folder for results and checkpoints, so that a killed sweep can be resumed; empty:
  // none.
  std::filesystem::path out;
  bool resume = false;
  bool force = false;  // replace an unfinished sweep in `out`
  size_t models = 0;   // how many of the best model files to return
  std::function<void(const PopulationLayout& layout, size_t from_before)> started;
  // Called when a combination begins (with a null point), and when its result is complete.
  std::function<void(size_t index, size_t count, const std::string& label, const SweepPoint* point)>
      progress;
  Communicator* ranks = nullptr;  // null: alone
};

struct Sweep {
  std::vector<std::string> keys;
  std::vector<std::vector<std::string>> choices;  // of each key, in the order given
  std::vector<SweepPoint> points;                 // every combination, the last key fastest
  int stopped_by = 0;                             // a signal's number
  std::optional<Error> failed;  // the error that ended it early; earlier points are valid
  // The point that is best on the validation set; none without such a set. The test set is reported
  // for this one only.
  std::optional<size_t> chosen;
  // The best completed points, at most SweepOptions::models, with their model files.
  struct Model {
    size_t point;
    std::vector<std::byte> bytes;
  };
  std::vector<Model> best{};
};

// "a,b,c" -> the values; commas inside quotes, brackets and braces do not count. "1..4" stands for
// the whole numbers from 1 to 4.
std::vector<std::string> split_values(const std::string& text);

// Trains every combination of the `sets` with several values; those with one apply to all. All
// configs are checked, also against the data, before the first run. Combinations of one shape train
// side by side (train_population); several ranks divide the combinations.
Sweep sweep(const std::filesystem::path& config, const std::vector<std::string>& sets,
            const SweepOptions& options);

std::string to_table(const Sweep& sweep);  // for people
std::string to_csv(const Sweep& sweep);
std::string to_json_text(const Sweep& sweep);
bool is_sweep_csv(std::string_view head);  // recognises the output of to_csv()
// `metric` is one of chart_metrics(). Accuracy, loss and similar metrics are of the validation set
// if there is one, else of the test set. The x axis is the swept key with the most values; the
// other keys' combinations are the lines.
Chart to_chart(const Sweep& sweep, const std::string& metric);
// The columns of to_csv(): of chart_metrics() those that a combination has.
std::vector<std::string> sweep_metrics(const Sweep& sweep);
std::vector<std::string> chart_metrics();
double metric_of(const SweepPoint& point, const std::string& metric);  // NaN: it has none

}  // namespace ridgeline::engine
