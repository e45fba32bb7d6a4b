#include "ridgeline/engine/head_scores.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridgeline/engine/evaluation.h"

namespace ridgeline::engine {
namespace {

// Returns the columns [begin, begin + count) of rows of `width`.
std::vector<float> columns(std::span<const float> rows, int64_t width, int64_t begin,
                           int64_t count) {
  std::vector<float> taken;
  taken.reserve(rows.size() / size_t(width) * size_t(count));
  for (size_t row = 0; row < rows.size(); row += size_t(width)) {
    const auto first = rows.begin() + ptrdiff_t(row) + begin;
    taken.insert(taken.end(), first, first + count);
  }
  return taken;
}

std::vector<int32_t> largest(std::span<const float> rows, int64_t width) {
  std::vector<int32_t> places;
  for (size_t row = 0; row < rows.size(); row += size_t(width)) {
    const auto first = rows.begin() + ptrdiff_t(row);
    places.push_back(int32_t(std::max_element(first, first + width) - first));
  }
  return places;
}

}  // namespace

std::vector<HeadScores> score_heads(const nn::Model& model, const data::SampleSet& set,
                                    std::span<const float> outputs, std::span<const double> units) {
  std::vector<HeadScores> all;
  const int64_t width = model.output().numel();
  int64_t begin = 0;
  for (const nn::Head& head : model.graph().heads()) {
    const int64_t count = model.output_of(head.layer).numel();
    const std::vector<float> given = columns(outputs, width, begin, count);
    const std::vector<float> wanted = columns(set.targets.span<const float>(), width, begin, count);
    HeadScores found{head.name};
    if (nn::wants_labels(head.loss.kind)) {
      const std::vector<int32_t> labels = largest(wanted, count), guesses = largest(given, count);
      int64_t hits = 0;
      for (size_t i = 0; i < labels.size(); ++i) hits += labels[i] == guesses[i];
      found.accuracy = double(hits) / double(labels.size());
      found.scores = score_classes(given, labels, int(count));
    } else if (head.loss.kind == nn::LossKind::binary_cross_entropy) {
      found.scores = score_labels(given, wanted, count, 0.0);  // the outputs are logits
    } else {
      found.scores =
          score_values(given, wanted, count,
                       units.empty() ? units : units.subspan(size_t(begin), size_t(count)));
    }
    begin += count;
    all.push_back(std::move(found));
  }
  return all;
}

std::string to_text(const HeadScores& head) {
  Evaluation as;
  as.accuracy = head.accuracy;
  as.scores = head.scores;
  std::string text;
  for (const auto& [metric, value] : metrics_of(as)) {
    if (metric == Metric::loss) continue;
    text += (text.empty() ? "" : ", ") + to_text(metric, value);
  }
  return fmt::format("head {}: {}", head.name, text);
}

}  // namespace ridgeline::engine
