#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ridgeline/engine/train.h"

namespace ridgeline::engine {

nlohmann::json to_json(const TrainReport& report) {
  nlohmann::json json = {
      {"accuracy", report.test.accuracy},
      {"loss", report.test.loss},
      {"train_accuracy", report.train_accuracy},
      {"train_loss", report.train_loss},
      {"steps", report.steps},
      {"steps_here", report.steps_here},
      {"clipped_steps", report.clipped_steps},
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
      {"rows", report.rows},
      {"plan_source", report.plan_source},
      {"memory",
       {{"arena", report.memory.arena},
        {"peak_live", report.memory.peak_live},
        {"sum", report.memory.sum}}},
      {"ranks", report.ranks},
      {"rank_train_seconds", report.rank_seconds},
      {"rank_blocked_seconds", report.rank_blocked_seconds},
      {"stopped_by", report.stopped_by}};
  if (report.ranks > 1) {
    json["network"] = {{"bandwidth", report.network.bandwidth},
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
    json["ceilings"] = {{"fp32_flops", report.ceilings->fp32_flops},
                        {"fp64_flops", report.ceilings->fp64_flops},
                        {"memory_bandwidth", report.ceilings->memory_bandwidth()},
                        {"date", report.ceilings->date}};
  }
  return json;
}

std::string summary(const TrainReport& report) {
  std::string text;
  if (report.stopped_by == 0) {
    text += fmt::format("accuracy   {:.2f} % of {} test images (loss {:.4f})\n",
                        100 * report.test.accuracy, report.test.rows, report.test.loss);
  }
  text += fmt::format("speed      {} steps in {}: {:.1f} us a step, {} inputs/s, {}FLOP/s\n",
                      report.steps_here, duration(report.train_seconds),
                      1e6 * report.seconds_per_step(), grouped(report.inputs_per_second),
                      engineering(report.flops_per_second));
  if (report.limit && report.steps_here > 0) {
    text += fmt::format(
        "limit      {:.0f} % reached of this machine's: {:.1f} us a step ({}-bound; {}FLOP/s, "
        "{}B/s, measured {})\n",
        100 * report.limit_fraction, 1e6 * report.limit->seconds(), report.limit->bound(),
        engineering(report.ceilings->flops(parse_precision(report.precision))),
        engineering(report.ceilings->memory_bandwidth()), report.ceilings->date);
  }
  if (report.ranks > 1 && report.train_seconds > 0) {
    double most = 0;
    for (const double seconds : report.rank_blocked_seconds) most = std::max(most, seconds);
    text += fmt::format("ranks      {}; waiting for others took {:.1f} % of the time at most\n",
                        report.ranks, 100 * most / report.train_seconds);
    text += fmt::format(
        "network    {} measured; a step's {}B should take {:.1f} us if nothing hid "
        "them\n",
        prof::to_string(report.network), engineering(report.network_bytes),
        1e6 * report.network_seconds);
  }
  text += fmt::format("start-up   {}, of it tuning {}\n", duration(report.startup_seconds),
                      duration(report.tuning_seconds));
  if (report.clipped_steps > 0) {
    text += fmt::format("clipped    gradients of {} steps\n", report.clipped_steps);
  }
  return text;
}

}  // namespace ridgeline::engine
