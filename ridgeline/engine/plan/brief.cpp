#include "ridgeline/engine/plan/brief.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <vector>

#include "ridgeline/core/text.h"

namespace ridgeline::engine {
namespace {

std::string micros(double seconds) { return fmt::format("{:.1f} us", 1e6 * seconds); }

// "1 conv2d", "0-4 linear ... linear", "data", "loss"
std::string layers_of(const Choice& choice, const nn::Lowered& lowered, const nn::Model& model) {
  int first = -1, last = -1;
  for (size_t op = choice.begin; op < choice.end; ++op) {
    const int layer = lowered.op_layer[op];
    if (layer < 0) continue;
    first = first < 0 ? layer : std::min(first, layer);
    last = std::max(last, layer);
  }
  if (first < 0) return std::string(name(lowered.program.ops[choice.begin]));
  const auto type = [&](int layer) { return model.layers()[size_t(layer)]->type(); };
  const auto path = [&](int layer) { return model.graph().layers()[size_t(layer)].path; };
  if (first == last) return fmt::format("{} {}", path(first), type(first));
  return fmt::format("{}-{} {} {} {}", path(first), path(last), type(first),
                     last > first + 1 ? "..." : "and", type(last));
}

// The cheapest alternative to a choice's kernel for the same ops, by times measured alone.
struct RunnerUp {
  double seconds = std::numeric_limits<double>::infinity();
  std::vector<const Candidate*> kernels;  // in order
};

RunnerUp runner_up(const Choice& choice, const std::vector<Candidate>& candidates) {
  std::vector<RunnerUp> best(choice.end - choice.begin + 1);
  best.front().seconds = 0;
  const auto begin = std::ranges::lower_bound(candidates, choice.begin, {}, &Candidate::begin);
  for (auto each = begin; each != candidates.end() && each->begin < choice.end; ++each) {
    const size_t from = each->begin - choice.begin, to = from + each->cover.ops;
    const bool itself = each->kernel == choice.kernel && each->begin == choice.begin;
    if (itself || each->cover.ops == 0 || each->seconds < 0 || to >= best.size()) continue;
    const double seconds = best[from].seconds + each->seconds;
    if (seconds >= best[to].seconds) continue;
    best[to] = best[from];
    best[to].seconds = seconds;
    best[to].kernels.push_back(&*each);
  }
  return best.back();
}

std::string reason(const Choice& choice, const Explanation& explanation) {
  if (choice.seconds <= 0) {
    const bool tuned = explanation.source.starts_with("measured") || explanation.source == "cache";
    return tuned ? "" : "first that fits, in the table's order";
  }
  const RunnerUp next = runner_up(choice, explanation.candidates);
  if (next.kernels.empty()) return "no other kernel was measured here";
  std::string names = next.kernels.front()->kernel->name;
  if (next.kernels.size() > 1) {
    names += fmt::format(" and {} more", next.kernels.size() - 1);
  }
  if (next.seconds < choice.seconds) {
    return fmt::format("in a whole step faster than {} ({} alone)", names, micros(next.seconds));
  }
  return fmt::format("{:.2f}x as fast as {} ({})", next.seconds / choice.seconds, names,
                     micros(next.seconds));
}

}  // namespace

std::string brief_plan(const nn::Lowered& lowered, const nn::Model& model, const Plan& plan,
                       const Explanation& explanation) {
  struct Line {
    std::string time, layers, kernel, why;
  };
  std::vector<Line> lines{{"time", "layers", "kernel", "why"}};
  for (size_t i = 0; i < plan.choices().size(); ++i) {
    const Choice& choice = plan.choices()[i];
    const std::string time = choice.seconds > 0 ? micros(choice.seconds) : "-";
    if (choice.converted >= 0) {
      lines.push_back({time, "", plan.label(i), "converts the format between its neighbours"});
      continue;
    }
    lines.push_back(
        {time, layers_of(choice, lowered, model), plan.label(i), reason(choice, explanation)});
  }
  size_t time = 0, layers = 0, kernel = 0;
  for (const Line& line : lines) {
    time = std::max(time, line.time.size());
    layers = std::max(layers, line.layers.size());
    kernel = std::max(kernel, line.kernel.size());
  }
  std::string text = fmt::format("chosen kernels ({}):\n", explanation.source);
  for (const Line& line : lines) {
    std::string text_line = fmt::format("  {:>{}}  {:<{}}  {:<{}}  {}", line.time, time,
                                        line.layers, layers, line.kernel, kernel, line.why);
    text_line.erase(text_line.find_last_not_of(' ') + 1);
    text += text_line + "\n";
  }
  if (!explanation.shortlist_seconds.empty()) {
    const auto& whole = explanation.shortlist_seconds;
    text += fmt::format("a step takes {}, the fastest of {} measured whole\n",
                        micros(*std::ranges::min_element(whole)),
                        counted(int64_t(whole.size()), "plan"));
  }
  return text;
}

}  // namespace ridgeline::engine
