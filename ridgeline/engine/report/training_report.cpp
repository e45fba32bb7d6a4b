#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "ridgeline/core/text.h"
#include "ridgeline/engine/train/train.h"

namespace ridgeline::engine {

nlohmann::json to_json(const TrainReport& report) {
  nlohmann::json json = {
      {"loss", nullptr},
      {"train_loss", report.train_loss},
      {"steps", report.steps},
      {"steps_here", report.steps_here},
      {"clipped_steps", report.clipped_steps},
      {"skipped_steps", report.skipped_steps},
      {"loss_scale", report.loss_scale > 0 ? nlohmann::json(report.loss_scale) : nullptr},
      {"steps_per_second", report.steps_here > 0 ? 1 / report.seconds_per_step() : 0},
      {"us_per_step", 1e6 * report.seconds_per_step()},
      {"inputs_per_second", report.inputs_per_second},
      {"flops_per_second", report.flops_per_second},
      {"limit_fraction", nullptr},
      {"limit", nullptr},
      {"ceilings", nullptr},
      {"startup_seconds", report.startup_seconds},
      {"tuning_seconds", report.tuning_seconds},
      {"train_seconds", report.train_seconds},
      {"test_seconds", report.test_seconds},
      {"device", report.device},
      {"threads", report.threads},
      {"precision", report.precision},
      {"data", report.data},
      {"parameters", report.parameters},
      {"kernels", report.kernels.train},
      {"kernels_last_batch", report.kernels.tail},
      {"kernels_evaluation", report.kernels.evaluate},
      {"kernels_evaluation_last_batch", report.kernels.evaluate_tail},
      {"plan_source", report.plan_source},
      {"memory",
       {{"arena", report.memory.arena},
        {"peak_live", report.memory.peak_live},
        {"sum", report.memory.sum}}},
      {"ranks", report.ranks},
      {"rank_train_seconds", report.rank_seconds},
      {"rank_blocked_seconds", report.rank_blocked_seconds},
      {"stopped_by", report.stopped_by}};
  if (!std::isnan(report.test.accuracy)) json["train_accuracy"] = report.train_accuracy;
  if (report.test.targets > 0) {
    for (const auto& [metric, value] : metrics_of(report.test)) {
      json[std::string(name(metric))] = value;
    }
  }
  if (report.validation) {
    for (const auto& [metric, value] : metrics_of(*report.validation)) {
      json["validation"][std::string(name(metric))] = value;
    }
  }
  if (report.best_step >= 0) {
    json["best"] = {{"monitor", name(report.monitor)},
                    {"value", report.best_value},
                    {"step", report.best_step},
                    {"kept", report.kept_best}};
    json["stopped_early"] = report.stopped_early;
  }
  if (report.ranks > 1) {
    json["network"] = {{"mpi", to_json(report.mpi)},
                       {"bandwidth", report.network.bandwidth},
                       {"latency", report.network.latency},
                       {"bytes_per_step", report.network_bytes},
                       {"predicted_us_per_step", 1e6 * report.network_seconds}};
  }
  if (report.limit) {
    json["limit_fraction"] = report.limit_fraction;
    json["limit"] = {{"us_per_step", 1e6 * report.limit->seconds()},
                     {"bound", report.limit->bound()},
                     {"flops", report.limit->flops},
                     {"bytes", report.limit->bytes}};
  }
  if (report.ceilings) {
    json["ceilings"] = {
        {"fp32_flops", report.ceilings->fp32_flops},
        {"fp64_flops", report.ceilings->fp64_flops},
        {"tf32_flops", report.ceilings->tf32_flops > 0 ? nlohmann::json(report.ceilings->tf32_flops)
                                                       : nlohmann::json(nullptr)},
        {"memory_bandwidth", report.ceilings->memory_bandwidth()},
        {"date", report.ceilings->date},
        {"certain", report.ceilings->certain}};
  }
  return json;
}

namespace {

std::string scores_text(const TrainReport& report) {
  std::string text, scores;
  for (const auto& [metric, value] : metrics_of(report.test)) {
    if (metric == Metric::loss || metric == Metric::accuracy) continue;
    scores += (scores.empty() ? "" : ", ") + to_text(metric, value);
  }
  if (!scores.empty()) text += fmt::format("scores     {}\n", scores);
  for (const HeadScores& head : report.test.heads) {
    text += fmt::format("           {}\n", to_text(head));
  }
  if (report.validation && report.best_step >= 0) {
    text += fmt::format("validation {}, the best, after step {} of {}{}{}\n",
                        to_text(report.monitor, report.best_value), report.best_step, report.steps,
                        report.kept_best ? "; its weights are kept" : "",
                        report.stopped_early ? "; stopped early" : "");
  }
  return text;
}

}  // namespace

std::string summary(const TrainReport& report) {
  std::string text;
  const bool tested = report.stopped_by == 0 && report.test.targets > 0;
  if (tested && std::isnan(report.test.accuracy)) {
    text += fmt::format("loss       {:.6g} of {} test samples\n", report.test.loss,
                        report.test.targets);
  } else if (tested) {
    const bool sequences = report.test.targets > report.test.samples;
    text += fmt::format(
        "accuracy   {:.2f} % of {} test {} (loss {:.4f}{})\n", 100 * report.test.accuracy,
        report.test.targets,
        sequences          ? "characters"
        : report.texts     ? "texts"
        : report.user_data ? "samples"
                           : "images",
        report.test.loss,
        sequences ? fmt::format(" nats, perplexity {:.3f}", std::exp(report.test.loss)) : "");
  }
  if (tested) text += scores_text(report);
  text += fmt::format("speed      {} in {}: {:.1f} us a step, {} inputs/s, {}FLOP/s\n",
                      counted(report.steps_here, "step"), duration(report.train_seconds),
                      1e6 * report.seconds_per_step(), grouped(report.inputs_per_second),
                      engineering(report.flops_per_second));
  if (report.limit && report.steps_here > 0 && !report.ceilings->certain) {
    text += fmt::format(
        "limit      uncertain, about {:.1g} us a step: measured {} on a busy machine; on an idle "
        "one, ridgeline info --measure\n",
        1e6 * report.limit->seconds(), report.ceilings->date);
  } else if (report.limit && report.steps_here > 0) {
    text += fmt::format(
        "limit      {:.0f} % reached of this machine's: {:.1f} us a step ({}-bound; {}FLOP/s, "
        "{}B/s, measured {})\n",
        100 * report.limit_fraction, 1e6 * report.limit->seconds(), report.limit->bound(),
        engineering(report.ceilings->flops(parse_precision(report.precision))),
        engineering(report.ceilings->memory_bandwidth()), report.ceilings->when());
  }
  if (report.ranks > 1 && report.train_seconds > 0) {
    double most = 0;
    for (const double seconds : report.rank_blocked_seconds) most = std::max(most, seconds);
    text += fmt::format("ranks      {}; waiting for others took {:.1f} % of the time at most\n",
                        report.ranks, 100 * most / report.train_seconds);
    text += fmt::format(
        "network    {}; {} measured; a step's {}B should take {:.1f} us if nothing hid "
        "them\n",
        to_string(report.mpi), prof::to_string(report.network), engineering(report.network_bytes),
        1e6 * report.network_seconds);
  }
  text += fmt::format("start-up   {}, of it tuning {}\n", duration(report.startup_seconds),
                      duration(report.tuning_seconds));
  if (report.clipped_steps > 0) {
    text += fmt::format("clipped    gradients of {}\n", counted(report.clipped_steps, "step"));
  }
  if (report.loss_scale > 0) {
    text += fmt::format("loss scale {} at the end; {} steps skipped\n", report.loss_scale,
                        report.skipped_steps);
  }
  return text;
}

}  // namespace ridgeline::engine
