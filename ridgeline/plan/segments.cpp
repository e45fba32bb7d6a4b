#include "ridgeline/plan/segments.h"

#include <algorithm>

namespace ridgeline {
namespace {

bool is_between(const Choice& choice) { return choice.kernel->traits.between_graphs; }

bool starts_in_graph(const Program& program, const Choice& choice) {
  for (size_t op = choice.begin; op < choice.end; ++op) {
    if (std::holds_alternative<AllReduceStart>(program.ops[op])) return !is_between(choice);
  }
  return false;
}

}  // namespace

std::vector<Segment> segments_of(const Program& program, const Choices& choices) {
  if (std::ranges::none_of(choices, is_between)) return {{0, choices.size(), true}};
  const auto under_way = [&](const Choice& choice) { return starts_in_graph(program, choice); };
  if (std::ranges::any_of(choices, under_way)) return {{0, choices.size(), false}};
  std::vector<Segment> segments;
  for (size_t i = 0; i < choices.size(); ++i) {
    const bool graph = !is_between(choices[i]);
    if (segments.empty() || segments.back().graph != graph) segments.push_back({i, i, graph});
    segments.back().end = i + 1;
  }
  return segments;
}

}  // namespace ridgeline
