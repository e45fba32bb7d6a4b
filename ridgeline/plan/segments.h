#pragma once

#include <vector>

#include "ridgeline/plan/plan.h"

namespace ridgeline {

// The steps [begin, end) of a plan, launched as one graph or one by one.
struct Segment {
  size_t begin = 0, end = 0;
  bool graph = true;

  bool operator==(const Segment&) const = default;
};

// Divides a plan into segments that are launched one after the other: a single graph, unless the
// plan has kernels that run between graphs. A graph must not end while a sum that it started is
// still running on another stream, so a plan with starts of both kinds has no graphs at all.
std::vector<Segment> segments_of(const Program& program, const Choices& choices);

}  // namespace ridgeline
