#include "ridgeline/engine/stream/times.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ridgeline/core/json.h"

namespace ridgeline::engine {
namespace {

nlohmann::json json_of(const DeviceTimes& device) {
  return {{"device", device.device},
          {"memory_ready", device.memory_ready},
          {"engine_ready", device.engine_ready},
          {"first_in", device.first_in},
          {"compute_start", device.compute_start},
          {"last_in", device.last_in},
          {"compute_end", device.compute_end},
          {"copying", device.copying},
          {"computing", device.computing},
          {"waiting", device.waiting},
          {"chunks", device.chunks},
          {"samples", device.samples}};
}

DeviceTimes device_from(const nlohmann::json& json) {
  DeviceTimes device;
  device.device = json["device"];
  device.memory_ready = json["memory_ready"];
  device.engine_ready = json["engine_ready"];
  device.first_in = json["first_in"];
  device.compute_start = json["compute_start"];
  device.last_in = json["last_in"];
  device.compute_end = json["compute_end"];
  device.copying = json["copying"];
  device.computing = json["computing"];
  device.waiting = json["waiting"];
  device.chunks = json["chunks"];
  device.samples = json["samples"];
  return device;
}

std::string seconds_or_none(double value) { return value < 0 ? "-" : fmt::format("{:.3f}", value); }

}  // namespace

// Asks the kernel, because main() cannot know how long the libraries took to load.
double RunClock::process_age() {
  std::ifstream stat("/proc/self/stat"), uptime("/proc/uptime");
  std::string line;
  double up = 0;
  if (!std::getline(stat, line) || !(uptime >> up)) return 0;
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  std::string field;
  constexpr int kStartTime = 20;  // counted from the state, which follows the name
  for (int i = 0; i < kStartTime; ++i) fields >> field;
  const double ticks = std::strtod(field.c_str(), nullptr);
  return std::clamp(up - ticks / double(::sysconf(_SC_CLK_TCK)), 0.0, 1e6);
}

RunClock::RunClock() : offset_(process_age()), started_(0) {}

RunClock::RunClock(double age_then) : offset_(age_then), started_(age_then - process_age()) {}

std::string RankTimes::to_json(bool with_spans) const {
  nlohmann::json json{{"rank", rank},
                      {"host", host},
                      {"lost", lost},
                      {"start", start},
                      {"results_out", results_out},
                      {"decoding", decoding},
                      {"network", network},
                      {"sent_bytes", sent},
                      {"received_bytes", received},
                      {"devices", nlohmann::json::array()}};
  for (const DeviceTimes& device : devices) json["devices"].push_back(json_of(device));
  if (with_spans) {
    json["spans"] = nlohmann::json::array();
    for (const ChunkSpan& span : spans) {
      json["spans"].push_back(
          {span.device, span.number, span.begin, span.copied, span.computed, span.end});
    }
  }
  return dump_json(json, -1);
}

RankTimes RankTimes::from_json(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  RankTimes times;
  times.rank = json["rank"];
  times.host = json["host"];
  times.lost = json["lost"];
  times.start = json["start"];
  times.results_out = json["results_out"];
  times.decoding = json["decoding"];
  times.network = json["network"];
  times.sent = json["sent_bytes"];
  times.received = json["received_bytes"];
  for (const auto& device : json["devices"]) times.devices.push_back(device_from(device));
  if (json.contains("spans")) {
    for (const auto& span : json["spans"]) {
      times.spans.push_back({span[0], span[1], span[2], span[3], span[4], span[5]});
    }
  }
  return times;
}

std::string to_table(const std::vector<RankTimes>& ranks) {
  std::string text = fmt::format(
      "{:>4} {:<8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>8} {:>5} {:>8} {:>5}\n",
      "rank", "device", "start", "memory", "engine", "first in", "compute", "last in", "end", "out",
      "inputs", "compute%", "copy%", "network%", "idle%");
  for (const RankTimes& rank : ranks) {
    if (rank.lost) {
      text += fmt::format("{:>4} lost; its chunks were given to others\n", rank.rank);
      continue;
    }
    for (const DeviceTimes& device : rank.devices) {
      const double all = std::max(1e-9, rank.results_out - std::max(0.0, device.engine_ready));
      text += fmt::format(
          "{:>4} {:<8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>9} {:>8.1f} {:>5.1f} "
          "{:>8.1f} {:>5.1f}\n",
          rank.rank, device.device, seconds_or_none(rank.start),
          seconds_or_none(device.memory_ready), seconds_or_none(device.engine_ready),
          seconds_or_none(device.first_in), seconds_or_none(device.compute_start),
          seconds_or_none(device.last_in), seconds_or_none(device.compute_end),
          seconds_or_none(rank.results_out), device.samples, 100 * device.computing / all,
          100 * device.copying / all, 100 * rank.network / all,
          100 * std::max(0.0, all - device.computing - device.copying) / all);
    }
  }
  return text;
}

void add_to_timeline(const std::vector<RankTimes>& ranks, prof::Timeline& timeline) {
  for (const RankTimes& rank : ranks) {
    std::vector<int> lanes;
    for (size_t i = 0; i < rank.devices.size(); ++i) {
      const DeviceTimes& device = rank.devices[i];
      lanes.push_back(timeline.lane(rank.rank, fmt::format("{} {}", device.device, i)));
      if (device.memory_ready >= 0) {
        timeline.add(
            {lanes.back(), "memory", "start", rank.start, device.memory_ready - rank.start, {}});
      }
      if (device.engine_ready >= 0) {
        timeline.add({lanes.back(),
                      "engine",
                      "start",
                      device.memory_ready,
                      device.engine_ready - device.memory_ready,
                      {}});
      }
    }
    double computed = rank.start;
    for (const DeviceTimes& device : rank.devices)
      computed = std::max(computed, device.compute_end);
    if (rank.results_out >= computed) {  // from the end of all computation until they were written
      timeline.add({timeline.lane(rank.rank, "results"),
                    "results out",
                    "output",
                    computed,
                    rank.results_out - computed,
                    {}});
    }
    for (const ChunkSpan& span : rank.spans) {
      const std::vector<std::pair<std::string, double>> numbers{{"chunk", double(span.number)}};
      if (span.device < 0) {
        const auto lane = timeline.lane(rank.rank, span.device == -1 ? "decode" : "network");
        timeline.add({lane, span.device == -1 ? "decode" : "chunk in", "input", span.begin,
                      span.end - span.begin, numbers});
        continue;
      }
      const int lane = lanes[size_t(span.device) % lanes.size()];
      timeline.add({lane, "copy in", "copy", span.begin, span.copied - span.begin, numbers});
      timeline.add({lane, "compute", "compute", span.copied, span.computed - span.copied, numbers});
      timeline.add({lane, "copy out", "copy", span.computed, span.end - span.computed, numbers});
    }
  }
}

}  // namespace ridgeline::engine
