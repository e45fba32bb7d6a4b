#include "ridgeline/engine/bench/row_times.h"

#include <algorithm>

#include "ridgeline/plan/row_patterns.h"
#include "ridgeline/plan/stopwatch.h"

namespace ridgeline::engine {
namespace {

// "cuda.linear.cublaslt.3" -> "cublaslt"
std::string way_of(const std::string& row) {
  const size_t op = row.find('.') + 1;
  const size_t way = row.find('.', op) + 1;
  return row.substr(way, row.find('.', way) - way);
}

bool is_vendor(const std::string& way) {
  return way == "cublaslt" || way == "cudnn" || way == "onednn" || way == "nccl";
}

void keep_fastest(std::vector<WayTime>& ways, WayTime time) {
  const auto same = std::ranges::find(ways, time.way, &WayTime::way);
  if (same == ways.end()) {
    ways.push_back(std::move(time));
  } else if (time.seconds < same->seconds) {
    *same = std::move(time);
  }
}

}  // namespace

std::vector<WayTime> time_ways(const Program& program, Machine& machine, double seconds_per_row,
                               size_t at) {
  DeviceStopwatch stopwatch(program, machine.runtime(), seconds_per_row, nullptr);
  std::vector<WayTime> ways;
  for (const bool references : {false, true}) {
    if (references && !ways.empty()) break;
    for (const Impl& row : machine.rows()) {
      if (row.target != machine.device().kind || !row.covers) continue;
      if (row.traits.fallback != references) continue;
      if (!is_asked_for(row.name, machine.plan_options())) continue;
      const Cover cover = row.covers({program, at, machine.runtime()});
      if (cover.ops != 1) continue;
      const std::string way = way_of(row.name);
      Choice choice;
      choice.row = &row;
      choice.begin = at;
      choice.end = at + 1;
      choice.cover = cover;
      keep_fastest(ways, {way, row.name, stopwatch.row(choice), is_vendor(way)});
    }
  }
  return ways;
}

}  // namespace ridgeline::engine
