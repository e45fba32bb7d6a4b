#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ridgeline::prof {

// Events over time, in lanes: one for each stream, thread or part of a rank. Times are seconds from
// one common zero.
class Timeline {
 public:
  using Lane = int;
  struct Span {
    Lane lane = 0;
    std::string name, category;
    double begin = 0, seconds = 0;
    std::vector<std::pair<std::string, double>> numbers;  // shown when the span is selected
  };

  Lane lane(int rank, std::string name);
  void add(Span span) { spans_.push_back(std::move(span)); }

  struct LaneInfo {
    int rank = 0;
    std::string name;
  };
  const std::vector<LaneInfo>& lanes() const { return lanes_; }
  const std::vector<Span>& spans() const { return spans_; }

  // Returns the trace-event format of Perfetto and chrome://tracing: a process for each rank, a
  // thread for each lane, complete events with times in microseconds. Spans of one lane nest or
  // follow one another if the added ones do.
  std::string to_json() const;

 private:
  std::vector<LaneInfo> lanes_;
  std::vector<Span> spans_;
};

}  // namespace ridgeline::prof
