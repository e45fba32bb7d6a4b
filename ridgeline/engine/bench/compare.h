#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ridgeline::engine {

struct RunConfig;

// One timed thing of a results file: what `bench --json` wrote, or what bench/results keeps.
struct BenchResult {
  std::string name;  // network or shape, batch, precision and the like: equal for equal work
  double us = 0;     // the median
  double us_min = 0;
  double limit_fraction = 0;  // 0: not stated
  std::string date = {};      // ISO; empty: not stated
};
// Throws data when the file holds no results.
std::vector<BenchResult> read_results(const std::filesystem::path& file);

struct BenchChange {
  std::string name;
  double before_us = 0, after_us = 0;
  double ratio = 1;  // how much longer it takes now; by fractions of the limit where both state one
  double noise = 0;  // a ratio up to 1 + noise says nothing
  bool slower() const { return ratio > 1 + noise; }
  bool faster() const { return ratio * (1 + noise) < 1; }
};

struct BenchComparison {
  std::vector<BenchChange> changes;
  std::vector<std::string> only_before, only_after;
  bool slower() const;
};
// The fraction of the limit is compared where both have one that is not passed: it holds on a
// machine that was measured slower altogether. Noise is what either's median lies above its least,
// at least 5 %.
BenchComparison compare_results(const std::vector<BenchResult>& before,
                                const std::vector<BenchResult>& after);
std::string to_text(const BenchComparison& comparison);

// The results kept for a machine (its Runtime::fingerprint()) and its threads in a folder such as
// bench/results, in any of the files there. What was kept twice is given once: of the newest date,
// and of those the last by its file's name and its place there.
std::vector<BenchResult> kept_results(const std::filesystem::path& folder,
                                      const std::string& machine, int threads);

std::vector<BenchResult> parse_results(const std::string& json);  // what a bench gives as JSON

// report.html in `folder`.
void write_bench_report(const std::vector<BenchResult>& results, const BenchComparison& since,
                        const RunConfig& run, const std::filesystem::path& folder);

}  // namespace ridgeline::engine
