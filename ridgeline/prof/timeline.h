#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ridgeline::prof {

// What happened when, in lanes: one for each stream, thread or part of a rank. Times are seconds
// from a zero that all lanes share.
class Timeline {
 public:
  using Lane = int;
  struct Span {
    Lane lane = 0;
    std::string name, category;
    double begin = 0, seconds = 0;
    std::vector<std::pair<std::string, double>> numbers;  // shown when the span is picked
  };

  Lane lane(int rank, std::string name);
  void add(Span span) { spans_.push_back(std::move(span)); }

  struct LaneInfo {
    int rank = 0;
    std::string name;
  };
  const std::vector<LaneInfo>& lanes() const { return lanes_; }
  const std::vector<Span>& spans() const { return spans_; }

  // The trace-event format that Perfetto and chrome://tracing open: a process for each rank, a
  // thread for each lane, complete events with times in microseconds. Spans of one lane nest or
  // follow one another if those added do.
  std::string to_json() const;

 private:
  std::vector<LaneInfo> lanes_;
  std::vector<Span> spans_;
};

}  // namespace ridgeline::prof
