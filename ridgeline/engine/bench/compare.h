#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ridgeline::engine {

struct RunConfig;

// One timing of a results file, from `bench --json` or from bench/results.
struct BenchResult {
  std::string name;  // network or shape, batch, precision and the like: equal for equal work
  double us = 0;     // the median
  double us_min = 0;
  double limit_fraction = 0;  // 0: not stated
  std::string date = {};      // ISO; empty: not stated
};
// Throws Error(data) if the file holds no results.
std::vector<BenchResult> read_results(const std::filesystem::path& file);

struct BenchChange {
  std::string name;
  double before_us = 0, after_us = 0;
  double ratio = 1;  // time now over time before; by fractions of the limit if both have one
  double noise = 0;  // a ratio up to 1 + noise is insignificant
  bool slower() const { return ratio > 1 + noise; }
  bool faster() const { return ratio * (1 + noise) < 1; }
};

struct BenchComparison {
  std::vector<BenchChange> changes;
  std::vector<std::string> only_before, only_after;
  bool slower() const;
};
// Compares fractions of the limit if both have a valid one, because these also hold on a machine
// that is slower altogether. The noise is how far either median lies above its minimum, at least 5
// %.
BenchComparison compare_results(const std::vector<BenchResult>& before,
                                const std::vector<BenchResult>& after);
std::string to_text(const BenchComparison& comparison);

// Returns the results kept for a machine (its Runtime::fingerprint()) and its threads in the files
// of a folder such as bench/results. Of duplicates, the one with the newest date counts, and among
// those the last by file name and position.
std::vector<BenchResult> kept_results(const std::filesystem::path& folder,
                                      const std::string& machine, int threads);

std::vector<BenchResult> parse_results(const std::string& json);  // the JSON of a bench

// Writes report.html in `folder`.
void write_bench_report(const std::vector<BenchResult>& results, const BenchComparison& since,
                        const RunConfig& run, const std::filesystem::path& folder);

}  // namespace ridgeline::engine
