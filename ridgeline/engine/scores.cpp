#include "ridgeline/engine/scores.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>

namespace ridgeline::engine {
namespace {

constexpr size_t kTop = 5;

// How much sample i counts.
double weight_of(std::span<const float> weights, size_t i) {
  return weights.empty() ? 1.0 : double(weights[i]);
}

double total_of(std::span<const float> weights, size_t samples) {
  return weights.empty() ? double(samples) : std::accumulate(weights.begin(), weights.end(), 0.0);
}

// Counts for one class against the rest.
struct Counts {
  double right = 0, wrong = 0, missed = 0;  // true positives, false positives, false negatives

  bool any() const { return right + wrong + missed > 0; }
  double f1() const {
    const double all = 2 * right + wrong + missed;
    return all > 0 ? 2 * right / all : 0;
  }
};

size_t likeliest(std::span<const float> outputs) {
  return size_t(std::ranges::max_element(outputs) - outputs.begin());
}

std::vector<Counts> count_classes(std::span<const float> outputs, std::span<const int32_t> labels,
                                  size_t classes, std::span<const float> weights = {}) {
  std::vector<Counts> counts(classes);
  for (size_t i = 0; i < labels.size(); ++i) {
    const size_t given = likeliest(outputs.subspan(i * classes, classes));
    const auto truth = size_t(labels[i]);
    const double weight = weight_of(weights, i);
    if (given == truth) {
      counts[truth].right += weight;
    } else {
      counts[given].wrong += weight;
      counts[truth].missed += weight;
    }
  }
  return counts;
}

double mean_f1(std::span<const Counts> counts) {
  double sum = 0;
  int64_t present = 0;
  for (const Counts& each : counts) {
    if (!each.any()) continue;
    sum += each.f1();
    ++present;
  }
  return present > 0 ? sum / double(present) : Scores::kNone;
}

// Maps floats to integers in the same order: larger floats have larger keys.
uint32_t sort_key(float value) {
  const auto bits = std::bit_cast<uint32_t>(value == 0 ? 0.0f : value);
  return (bits >> 31) != 0 ? ~bits : bits | 0x8000'0000u;
}

constexpr int kDigitBits = 11, kDigits = 3;  // of a key of 33 bits
constexpr size_t kFewKeys = 200;             // std::sort is as fast up to here

// Sorts keys below 2^33 digit by digit, from the lowest: each pass keeps the order of equal digits.
void sort_keys(std::vector<uint64_t>& keys) {
  if (keys.size() < kFewKeys) {
    std::ranges::sort(keys);
    return;
  }
  constexpr uint64_t kMask = (1u << kDigitBits) - 1;
  std::array<std::array<size_t, kMask + 1>, kDigits> places{};  // first how many, then where
  for (const uint64_t key : keys) {
    for (int d = 0; d < kDigits; ++d) ++places[size_t(d)][key >> (d * kDigitBits) & kMask];
  }
  std::vector<uint64_t> sorted(keys.size());
  for (int d = 0; d < kDigits; ++d) {
    auto& place = places[size_t(d)];
    std::exclusive_scan(place.begin(), place.end(), place.begin(), size_t{0});
    for (const uint64_t key : keys) sorted[place[key >> (d * kDigitBits) & kMask]++] = key;
    keys.swap(sorted);
  }
}

// The lowest bit of a key says whether the sample is positive; the score's key is above it.
double area_of_keys(std::vector<uint64_t>& keys) {
  sort_keys(keys);
  // Twice the number of pairs of a positive and a negative sample in the right order; ties count
  // once.
  double pairs = 0, negatives = 0, positives = 0;
  for (size_t i = 0; i < keys.size();) {
    double tied_positives = 0, tied_negatives = 0;
    const uint64_t score = keys[i] >> 1;
    for (; i < keys.size() && keys[i] >> 1 == score; ++i) {
      ((keys[i] & 1) != 0 ? tied_positives : tied_negatives) += 1;
    }
    pairs += tied_positives * (2 * negatives + tied_negatives);
    negatives += tied_negatives;
    positives += tied_positives;
  }
  return positives > 0 && negatives > 0 ? pairs / (2 * positives * negatives) : Scores::kNone;
}

// Returns the area of a column if samples have weights.
template <typename F>
double weighted_area(std::span<const float> outputs, size_t width, size_t column, F is_positive,
                     std::span<const float> weights) {
  std::vector<size_t> order(outputs.size() / width);
  std::iota(order.begin(), order.end(), size_t{0});
  const auto score = [&](size_t i) { return outputs[i * width + column]; };
  std::ranges::sort(order, [&](size_t a, size_t b) { return score(a) < score(b); });
  double pairs = 0, negatives = 0, positives = 0;
  for (size_t i = 0; i < order.size();) {
    double tied_positives = 0, tied_negatives = 0;
    const float here = score(order[i]);
    for (; i < order.size() && score(order[i]) == here; ++i) {
      (is_positive(order[i]) ? tied_positives : tied_negatives) += weight_of(weights, order[i]);
    }
    pairs += tied_positives * (2 * negatives + tied_negatives);
    negatives += tied_negatives;
    positives += tied_positives;
  }
  return positives > 0 && negatives > 0 ? pairs / (2 * positives * negatives) : Scores::kNone;
}

// Returns the area under the curve of a column, whose samples are positive if `is_positive(i)`.
template <typename F>
double column_area(std::span<const float> outputs, size_t width, size_t column, F is_positive,
                   std::span<const float> weights = {}) {
  std::vector<uint64_t> keys(outputs.size() / width);
  for (size_t i = 0; i < keys.size(); ++i) {
    const float score = outputs[i * width + column];
    if (std::isnan(score)) return Scores::kNone;
    keys[i] = uint64_t{sort_key(score)} << 1 | uint64_t(is_positive(i) ? 1 : 0);
  }
  if (!weights.empty()) return weighted_area(outputs, width, column, is_positive, weights);
  return area_of_keys(keys);
}

double mean_of_numbers(std::span<const double> values) {
  double sum = 0;
  int64_t count = 0;
  for (const double value : values) {
    if (std::isnan(value)) continue;
    sum += value;
    ++count;
  }
  return count > 0 ? sum / double(count) : Scores::kNone;
}

}  // namespace

double area_under_curve(std::span<const float> scores, const std::vector<bool>& positive) {
  return column_area(scores, 1, 0, [&](size_t i) { return bool(positive[i]); });
}

double accuracy_of(std::span<const float> outputs, std::span<const int32_t> labels, int classes,
                   std::span<const float> weights) {
  double right = 0;
  for (const Counts& each : count_classes(outputs, labels, size_t(classes), weights)) {
    right += each.right;
  }
  return right / total_of(weights, labels.size());
}

Scores score_classes(std::span<const float> outputs, std::span<const int32_t> labels, int classes,
                     std::span<const float> weights) {
  Scores scores;
  if (labels.empty()) return scores;
  const auto width = size_t(classes);
  scores.f1 = mean_f1(count_classes(outputs, labels, width, weights));
  if (width > kTop) {
    double among = 0;
    for (size_t i = 0; i < labels.size(); ++i) {
      const auto row = outputs.subspan(i * width, width);
      const float own = row[size_t(labels[i])];
      // Equal outputs count in their order, the first as the more likely.
      size_t before = 0;
      for (size_t c = 0; c < width; ++c) {
        before += row[c] > own || (row[c] == own && c < size_t(labels[i])) ? 1 : 0;
      }
      among += before < kTop ? weight_of(weights, i) : 0;
    }
    scores.top5 = among / total_of(weights, labels.size());
  }
  std::vector<double> areas;
  for (size_t c = 0; c < width; ++c) {
    const auto is_class = [&](size_t i) { return size_t(labels[i]) == c; };
    areas.push_back(column_area(outputs, width, c, is_class, weights));
  }
  scores.auc = mean_of_numbers(areas);
  return scores;
}

Scores score_labels(std::span<const float> outputs, std::span<const float> targets, int64_t width,
                    double threshold, std::span<const float> weights) {
  Scores scores;
  const auto columns = size_t(width);
  std::vector<Counts> counts(columns);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool given = double(outputs[i]) > threshold, truth = targets[i] > 0.5f;
    Counts& count = counts[i % columns];
    const double weight = weight_of(weights, i / columns);
    count.right += given && truth ? weight : 0;
    count.wrong += given && !truth ? weight : 0;
    count.missed += !given && truth ? weight : 0;
  }
  scores.f1 = mean_f1(counts);
  std::vector<double> areas;
  for (size_t c = 0; c < columns; ++c) {
    const auto is_present = [&](size_t i) { return targets[i * columns + c] > 0.5f; };
    areas.push_back(column_area(outputs, columns, c, is_present, weights));
  }
  scores.auc = mean_of_numbers(areas);
  return scores;
}

Scores score_values(std::span<const float> outputs, std::span<const float> targets, int64_t width,
                    std::span<const double> units, std::span<const float> weights) {
  Scores scores;
  const auto columns = size_t(width);
  const size_t samples = outputs.size() / columns;
  if (samples == 0) return scores;
  const double total = total_of(weights, samples);
  const auto share = [&](size_t i) { return weight_of(weights, i / columns) / total; };
  std::vector<double> mean(columns), square(columns), absolute(columns), spread(columns);
  for (size_t i = 0; i < targets.size(); ++i) {
    mean[i % columns] += double(targets[i]) * share(i);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const size_t c = i % columns;
    const double error = double(outputs[i]) - double(targets[i]);
    const double deviation = double(targets[i]) - mean[c];
    square[c] += error * error * share(i);
    absolute[c] += std::abs(error) * share(i);
    spread[c] += deviation * deviation * share(i);
  }
  scores.mse = scores.mae = scores.r2 = 0;
  for (size_t c = 0; c < columns; ++c) {
    const double unit = units.empty() ? 1 : std::abs(units[c]);
    scores.mse += square[c] * unit * unit / double(columns);
    scores.mae += absolute[c] * unit / double(columns);
    // If all values are equal, R^2 is 1 or 0.
    const double constant = square[c] == 0 ? 1 : 0;
    scores.r2 += (spread[c] > 0 ? 1 - square[c] / spread[c] : constant) / double(columns);
  }
  return scores;
}

std::vector<CalibrationBin> calibration(std::span<const float> probabilities,
                                        std::span<const int32_t> labels, int classes, int bins) {
  std::vector<CalibrationBin> all(size_t(std::max(1, bins)));
  const auto width = size_t(classes);
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto row = probabilities.subspan(i * width, width);
    const size_t given = likeliest(row);
    const double confidence = std::clamp(double(row[given]), 0.0, 1.0);
    if (std::isnan(confidence)) continue;
    CalibrationBin& bin = all[std::min(all.size() - 1, size_t(confidence * double(all.size())))];
    bin.confidence += confidence;
    bin.accuracy += given == size_t(labels[i]) ? 1 : 0;
    ++bin.samples;
  }
  for (CalibrationBin& bin : all) {
    if (bin.samples == 0) continue;
    bin.confidence /= double(bin.samples);
    bin.accuracy /= double(bin.samples);
  }
  return all;
}

std::vector<ClassScores> score_each_class(std::span<const float> outputs,
                                          std::span<const int32_t> labels, int classes) {
  const auto width = size_t(classes);
  std::vector<ClassScores> all(width);
  const std::vector<Counts> counts = count_classes(outputs, labels, width);
  for (size_t c = 0; c < width; ++c) {
    const Counts& count = counts[c];
    const auto share = [](double part, double whole) { return whole > 0 ? part / whole : 0; };
    all[c].samples = int64_t(count.right + count.missed);
    all[c].precision = share(count.right, count.right + count.wrong);
    all[c].recall = share(count.right, count.right + count.missed);
    all[c].f1 = count.f1();
    all[c].auc = column_area(outputs, width, c, [&](size_t i) { return size_t(labels[i]) == c; });
  }
  return all;
}

}  // namespace ridgeline::engine
