#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ridgeline::engine {

// The metrics of a model's outputs, besides loss and accuracy; NaN if a metric does not apply to
// the targets. The definitions are scikit-learn's.
struct Scores {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  // Scores of classes, and of multi-label targets.
  double top5 = kNone;  // the share of samples whose class is among the five most likely
  double f1 = kNone;    // the mean over the classes that occur or are predicted
  double auc = kNone;   // one-vs-rest, the mean over the classes that have both
  // Scores of values are in the units of the data, and means over the outputs.
  double mse = kNone, mae = kNone, r2 = kNone;
};

// In each of the following, `weights` [n] says how much each sample counts; empty: all count 1.

// `outputs` are [n, classes] and grow with the likelihood of a class; a label is the class of a
// sample.
Scores score_classes(std::span<const float> outputs, std::span<const int32_t> labels, int classes,
                     std::span<const float> weights = {});
// The share of samples whose largest output is first reached at their label.
double accuracy_of(std::span<const float> outputs, std::span<const int32_t> labels, int classes,
                   std::span<const float> weights);

// `outputs` and `targets` are [n, width]; a label is present if its target is above a half, and
// predicted if its output is above `threshold`.
Scores score_labels(std::span<const float> outputs, std::span<const float> targets, int64_t width,
                    double threshold, std::span<const float> weights = {});

// `outputs` and `targets` are [n, width]. `units`, one per output, convert an error of the model
// into units of the data; empty: all are 1.
Scores score_values(std::span<const float> outputs, std::span<const float> targets, int64_t width,
                    std::span<const double> units = {}, std::span<const float> weights = {});

// Returns the area under the ROC curve of these scores, ties counted half; NaN if all samples are
// of one kind.
double area_under_curve(std::span<const float> scores, const std::vector<bool>& positive);

// The accuracy of predictions within a range of confidence.
struct CalibrationBin {
  double confidence = 0, accuracy = 0;  // means over its samples
  int64_t samples = 0;
};
// Bins by the probability of the most likely class, in `bins` bins of equal width from 0 to 1.
std::vector<CalibrationBin> calibration(std::span<const float> probabilities,
                                        std::span<const int32_t> labels, int classes,
                                        int bins = 10);

struct ClassScores {
  int64_t samples = 0;  // of the class
  double precision = 0, recall = 0, f1 = 0, auc = Scores::kNone;
};
std::vector<ClassScores> score_each_class(std::span<const float> outputs,
                                          std::span<const int32_t> labels, int classes);

}  // namespace ridgeline::engine
