#include "ridgeline/nn/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ridgeline/core/error.h"
#include "ridgeline/core/text.h"

namespace ridgeline::nn {
namespace {

constexpr std::pair<std::string_view, ScheduleKind> kScheduleKinds[] = {
    {"constant", ScheduleKind::constant},
    {"step", ScheduleKind::step},
    {"cosine", ScheduleKind::cosine},
};

// The largest counts: no run reaches them, and they cannot overflow when multiplied by the steps of
// an epoch.
constexpr int64_t kMostSteps = int64_t{1} << 40;
constexpr int64_t kMostEpochs = int64_t{1} << 20;

int64_t in_steps(const TrainLength& length, const RunLength& run) {
  return length.epochs ? length.count * run.steps_per_epoch : length.count;
}

// Reads <prefix>epochs or <prefix>steps, not both.
TrainLength read_length(ConfigTable& table, const std::string& prefix,
                        const TrainLength& fallback) {
  const std::string epochs = prefix + "epochs", steps = prefix + "steps";
  if (table.has(epochs) && table.has(steps)) {
    table.fail(steps, fmt::format("give {} or {}, not both", epochs, steps));
  }
  if (table.has(epochs)) return {table.integer(epochs, std::nullopt, {1, kMostEpochs}), true};
  if (table.has(steps)) return {table.integer(steps, std::nullopt, {1, kMostSteps}), false};
  return fallback;
}

}  // namespace

std::string_view name(ScheduleKind kind) {
  for (const auto& [name, value] : kScheduleKinds) {
    if (value == kind) return name;
  }
  return "unknown";
}

void check(const Schedule& schedule, const RunLength& run) {
  if (schedule.kind != ScheduleKind::cosine || schedule.total.count == 0) return;
  const int64_t total = in_steps(schedule.total, run);
  if (total > schedule.warmup_steps) return;
  throw_error(ErrorKind::usage,
              "train.schedule: the cosine ends after {} steps{}, before its warm-up of {} does; "
              "give it more {} or a shorter warmup_steps",
              total,
              schedule.total.epochs
                  ? fmt::format(" ({} of {} steps)", counted(schedule.total.count, "epoch"),
                                run.steps_per_epoch)
                  : "",
              schedule.warmup_steps, schedule.total.epochs ? "epochs" : "steps");
}

double lr(const Schedule& schedule, double base, int64_t step, const RunLength& run) {
  const int64_t warmup = schedule.warmup_steps;
  if (step < warmup) return base * double(step + 1) / double(warmup);
  const int64_t at = step - warmup;  // the schedule's own step
  switch (schedule.kind) {
    case ScheduleKind::constant:
      return base;
    case ScheduleKind::step: {
      const int64_t every = std::max<int64_t>(1, in_steps(schedule.every, run));
      return base * std::pow(schedule.factor, double(at / every));
    }
    case ScheduleKind::cosine: {
      const int64_t total =
          schedule.total.count > 0 ? in_steps(schedule.total, run) : run.total_steps;
      const double length = double(std::max<int64_t>(1, total - warmup));
      const double done = std::min(1.0, double(at) / length);
      const double wave = 0.5 * (1.0 + std::cos(std::numbers::pi * done));
      return base * (schedule.min_factor + (1.0 - schedule.min_factor) * wave);
    }
  }
  return base;
}

Schedule read_schedule(ConfigTable& parent, const std::string& key) {
  Schedule schedule;
  ConfigTable table = parent.table(key);
  schedule.kind = table.choice<ScheduleKind>("type", ScheduleKind::constant, kScheduleKinds);
  schedule.warmup_steps = table.integer("warmup_steps", 0, {0, kMostSteps});
  if (schedule.kind == ScheduleKind::step) {
    schedule.every = read_length(table, "every_", schedule.every);
    schedule.factor = table.number("factor", 0.1, {kPositive, 1.0});
  }
  if (schedule.kind == ScheduleKind::cosine) {
    schedule.total = read_length(table, "", schedule.total);
    schedule.min_factor = table.number("min_factor", 0.0, {0.0, 1.0});
    // A total in epochs is compared once the steps of an epoch are known: check().
    if (table.has("steps") && schedule.total.count <= schedule.warmup_steps) {
      table.fail("steps", fmt::format("{} is not more than the {} of warmup_steps",
                                      schedule.total.count, schedule.warmup_steps));
    }
  }
  table.finish();
  return schedule;
}

std::string to_toml(const Schedule& schedule) {
  const auto unit = [](const TrainLength& length) { return length.epochs ? "epochs" : "steps"; };
  std::string text = fmt::format("{{ type = \"{}\", warmup_steps = {}", name(schedule.kind),
                                 schedule.warmup_steps);
  if (schedule.kind == ScheduleKind::step) {
    text += fmt::format(", every_{} = {}, factor = {}", unit(schedule.every), schedule.every.count,
                        toml_number(schedule.factor));
  }
  if (schedule.kind == ScheduleKind::cosine) {
    if (schedule.total.count > 0) {
      text += fmt::format(", {} = {}", unit(schedule.total), schedule.total.count);
    }
    text += fmt::format(", min_factor = {}", toml_number(schedule.min_factor));
  }
  return text + " }";
}

}  // namespace ridgeline::nn
