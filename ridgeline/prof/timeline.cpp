#include "ridgeline/prof/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "ridgeline/prof/text.h"

namespace ridgeline::prof {

Timeline::Lane Timeline::lane(int rank, std::string name) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].rank == rank && lanes_[i].name == name) return Lane(i);
  }
  lanes_.push_back({rank, std::move(name)});
  return Lane(lanes_.size() - 1);
}

std::string Timeline::to_json() const {
  std::string text =
      "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"producer\":\"ridgeline\"},\"traceEvents\":[";
  auto out = std::back_inserter(text);
  const char* comma = "\n";
  const auto put_name = [&](const char* what, int rank, int thread, const std::string& name) {
    fmt::format_to(out, "{}{{\"ph\":\"M\",\"name\":\"{}\",\"pid\":{},\"tid\":{},\"args\":{{", comma,
                   what, rank, thread);
    fmt::format_to(out, "\"name\":{}}}}}", json_text(name));
    comma = ",\n";
  };
  std::set<int> ranks;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (ranks.insert(lanes_[i].rank).second) {
      put_name("process_name", lanes_[i].rank, 0, fmt::format("rank {}", lanes_[i].rank));
    }
    put_name("thread_name", lanes_[i].rank, int(i), lanes_[i].name);
  }
  // Sorted by row and time, the longer first if two begin together: readers nest them in this
  // order.
  std::vector<const Span*> order;
  for (const Span& span : spans_) order.push_back(&span);
  std::stable_sort(order.begin(), order.end(), [](const Span* a, const Span* b) {
    if (a->lane != b->lane) return a->lane < b->lane;
    if (a->begin != b->begin) return a->begin < b->begin;
    return a->seconds > b->seconds;
  });
  for (const Span* span : order) {
    const LaneInfo& info = lanes_[size_t(span->lane)];
    fmt::format_to(out,
                   "{}{{\"ph\":\"X\",\"name\":{},\"cat\":{},\"pid\":{},\"tid\":{},\"ts\":{:.3f},"
                   "\"dur\":{:.3f}",
                   comma, json_text(span->name), json_text(span->category), info.rank, span->lane,
                   1e6 * span->begin, 1e6 * std::max(0.0, span->seconds));
    comma = ",\n";
    if (!span->numbers.empty()) {
      text += ",\"args\":{";
      for (size_t i = 0; i < span->numbers.size(); ++i) {
        const auto& [name, value] = span->numbers[i];
        fmt::format_to(out, "{}{}:{}", i > 0 ? "," : "", json_text(name),
                       std::isfinite(value) ? fmt::format("{:.9g}", value) : "null");
      }
      text += "}";
    }
    text += "}";
  }
  return text + "\n]}\n";
}

}  // namespace ridgeline::prof
