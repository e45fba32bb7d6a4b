#include "ridgeline/engine/report/confusion.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridgeline/engine/predict.h"
#include "ridgeline/engine/train/trainer.h"
#include "ridgeline/prof/page.h"

namespace ridgeline::engine {
namespace {

constexpr int kMostClasses = 64;  // a larger matrix is unreadable
constexpr size_t kPairs = 6, kImages = 4;
constexpr int64_t kBatch = 256;

std::vector<int32_t> predict(Trainer& trainer, const data::SampleSet& set) {
  const int64_t batch = std::min(kBatch, set.size()), features = set.features();
  Predictor predictor(trainer.machine(), trainer.config(), trainer.model(), trainer.scaling(),
                      set.classes, batch);
  const int64_t classes = trainer.model().output().numel();
  const auto samples = set.inputs.span<const uint8_t>();
  std::vector<int32_t> given;
  for (int64_t begin = 0; begin < set.size(); begin += batch) {
    const int64_t count = std::min(batch, set.size() - begin);
    const auto p =
        predictor.run(samples.subspan(size_t(begin * features), size_t(count * features)));
    for (int64_t i = 0; i < count; ++i) {
      const auto first = p.begin() + i * classes;
      given.push_back(int32_t(std::max_element(first, first + classes) - first));
    }
  }
  return given;
}

// The classes that a model predicts for the samples of a set.
struct Confusion {
  std::vector<std::vector<int64_t>> counts;  // [true class][predicted class]
  std::vector<int32_t> given;                // predicted class of each sample

  struct Pair {
    int32_t truth = 0, given = 0;
    int64_t count = 0;
  };
  std::vector<Pair> worst(size_t most) const;  // wrong pairs, the most frequent first
};

std::vector<Confusion::Pair> Confusion::worst(size_t most) const {
  std::vector<Pair> pairs;
  for (size_t truth = 0; truth < counts.size(); ++truth) {
    for (size_t given = 0; given < counts.size(); ++given) {
      if (truth == given || counts[truth][given] == 0) continue;
      pairs.push_back({int32_t(truth), int32_t(given), counts[truth][given]});
    }
  }
  std::stable_sort(pairs.begin(), pairs.end(),
                   [](const Pair& a, const Pair& b) { return a.count > b.count; });
  if (pairs.size() > most) pairs.resize(most);
  return pairs;
}

Confusion confusion_of(const std::vector<int32_t>& given, const data::SampleSet& set) {
  Confusion confusion;
  const auto classes = size_t(set.classes);
  confusion.counts.assign(classes, std::vector<int64_t>(classes));
  const auto labels = set.targets.span<const int32_t>();
  for (size_t i = 0; i < given.size(); ++i) ++confusion.counts[size_t(labels[i])][size_t(given[i])];
  confusion.given = given;
  return confusion;
}

std::string samples_html(const Confusion& confusion, const data::SampleSet& set) {
  const auto [height, width] = image_extent(set.sample_shape());
  if (height == 0) return {};
  const auto labels = set.targets.span<const int32_t>();
  const auto samples = set.inputs.span<const uint8_t>();
  std::string html;
  for (const Confusion::Pair& pair : confusion.worst(kPairs)) {
    html += fmt::format("<div class=\"pair\">{} taken for {}, {} times<br>", pair.truth, pair.given,
                        pair.count);
    size_t shown = 0;
    for (size_t i = 0; i < labels.size() && shown < kImages; ++i) {
      if (labels[i] != pair.truth || confusion.given[i] != pair.given) continue;
      html += prof::grey_image_html(
          samples.subspan(i * size_t(height * width), size_t(height * width)), width, height,
          fmt::format("test sample {}: {} taken for {}", i, pair.truth, pair.given));
      ++shown;
    }
    html += "</div>\n";
  }
  return html;
}

}  // namespace

std::pair<int, int> image_extent(const Shape& sample) {
  const bool plane = sample.rank() == 2 || (sample.rank() == 3 && sample[0] == 1);
  if (!plane) return {0, 0};
  const int64_t height = sample[sample.rank() - 2], width = sample[sample.rank() - 1];
  constexpr int64_t kMost = 256;
  return height > kMost || width > kMost ? std::pair{0, 0} : std::pair{int(height), int(width)};
}

std::string confusions_html(Trainer& trainer) {
  const data::SampleSet& set = trainer.set().test;
  if (set.has_values() || set.classes > kMostClasses || set.inputs.view().dtype != DType::uint8)
    return {};
  const Confusion confusion = confusion_of(predict(trainer, set), set);
  return prof::confusion_html(confusion.counts) + samples_html(confusion, set);
}

}  // namespace ridgeline::engine
