#include "ridgeline/engine/plan/batch_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "ridgeline/core/json.h"
#include "ridgeline/engine/progress.h"
#include "ridgeline/engine/train/step_share.h"
#include "ridgeline/registry.h"

namespace ridgeline::engine {
namespace {

constexpr double kNear = 0.95;  // at least this share of the best throughput counts as the best
constexpr double kLongestStep = 2.0;  // seconds: longer steps are not worth measuring

// Returns whether the last two doublings gained nothing.
bool has_peaked(const std::vector<BatchPoint>& points) {
  if (points.size() < 3) return false;
  const size_t last = points.size() - 1;
  const double before = points[last - 2].inputs_per_second();
  return points[last - 1].inputs_per_second() < before && points[last].inputs_per_second() < before;
}

// Returns the bytes that a sample adds to a step, from the two largest batches: small ones are
// mostly alignment.
double slope(const std::vector<BatchPoint>& points) {
  const BatchPoint& b = points.back();
  if (points.size() < 2) return double(b.memory) / double(b.batch);
  const BatchPoint& a = points[points.size() - 2];
  return (double(b.memory) - double(a.memory)) / double(b.batch - a.batch);
}

}  // namespace

BatchAdvice advise_batch(const Config& config, std::shared_ptr<const data::DataSet> set) {
  Machine machine(config.run);
  Trainer trainer(machine, config, set);
  BatchAdvice advice;
  advice.free_bytes = machine.runtime().free_memory();
  const int64_t samples = set->train.size();
  for (int64_t batch = 1; batch <= samples; batch *= 2) {
    const auto& points = advice.points;
    if (points.size() >= 2) {
      const double next = double(points.back().memory) + slope(points) * double(batch / 2);
      if (next > double(advice.free_bytes) || has_peaked(points)) break;
      if (points.back().seconds > kLongestStep) break;
    }
    StepShare step(machine, trainer, batch);
    advice.points.push_back({batch, step.seconds(), step.memory()});
  }
  const BatchPoint& last = advice.points.back();
  advice.bytes_per_sample = slope(advice.points);
  const double room = double(advice.free_bytes) - double(last.memory);
  const double fits = advice.bytes_per_sample > 0
                          ? double(last.batch) + room / advice.bytes_per_sample
                          : double(samples);
  advice.whole_set = fits >= double(samples);
  advice.largest = advice.whole_set ? samples : int64_t(fits);
  const auto rate = [](const BatchPoint& point) { return point.inputs_per_second(); };
  const auto best = std::ranges::max_element(advice.points, {}, rate);
  advice.fastest = best->batch;
  advice.enough = std::ranges::find_if(advice.points, [&](const BatchPoint& point) {
                    return rate(point) >= kNear * rate(*best);
                  })->batch;
  return advice;
}

std::string to_text(const BatchAdvice& advice) {
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{:>8} {:>12} {:>12} {:>10}\n", "batch", "us a step", "inputs/s", "memory");
  for (const BatchPoint& point : advice.points) {
    fmt::format_to(out, "{:>8} {:>12.1f} {:>12} {:>9}B\n", point.batch, 1e6 * point.seconds,
                   engineering(point.inputs_per_second()), engineering(double(point.memory)));
  }
  fmt::format_to(out, "\nbest throughput: batch {}", advice.fastest);
  if (advice.enough != advice.fastest) {
    fmt::format_to(out, "; batch {} is within {:.0f} % of it", advice.enough, 100 * (1 - kNear));
  }
  if (advice.whole_set) {
    fmt::format_to(out, "\nlargest batch: the whole training set of {} fits in memory\n",
                   advice.largest);
  } else {
    fmt::format_to(out, "\nlargest batch: about {} ({}B free, {}B a sample)\n", advice.largest,
                   engineering(double(advice.free_bytes)), engineering(advice.bytes_per_sample));
  }
  return text;
}

std::string to_json_text(const BatchAdvice& advice) {
  nlohmann::json all = {
      {"free_bytes", advice.free_bytes},  {"bytes_per_sample", advice.bytes_per_sample},
      {"largest", advice.largest},        {"whole_set", advice.whole_set},
      {"fastest", advice.fastest},        {"enough", advice.enough},
      {"points", nlohmann::json::array()}};
  for (const BatchPoint& point : advice.points) {
    all["points"].push_back({{"batch", point.batch},
                             {"step_us", 1e6 * point.seconds},
                             {"inputs_per_second", point.inputs_per_second()},
                             {"memory", point.memory}});
  }
  return dump_json(all, 2) + "\n";
}

}  // namespace ridgeline::engine
