#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "ridgeline/core/shape.h"

namespace ridgeline::engine {

struct InferReport;

// Collects the contents of the page about an inference run, as its results arrive: how often each
// label was given, how certain the model was, and the samples of which it was least certain.
class InferPage {
 public:
  // Outputs are `probabilities`, or values of any size.
  InferPage(int64_t classes, const Shape& sample, bool probabilities);

  void add(int64_t index, int64_t label, std::span<const double> outputs,
           std::span<const uint8_t> sample);
  // Writes report.html in `folder`.
  void write(const std::filesystem::path& folder, const InferReport& report,
             const std::string& model, const std::string& input, const std::string& machine) const;

 private:
  struct UncertainSample {
    int64_t index, label, second;
    double output, second_output;
    double certainty;  // the probability; for other outputs the difference of the two largest
    std::vector<uint8_t> sample;
  };

  Shape sample_;
  bool probabilities_;
  std::vector<int64_t> labels_;          // how often each label was given
  std::vector<int64_t> certainty_;       // histogram of the probability of the label, in tenths
  std::vector<UncertainSample> doubts_;  // the least certain first
};

}  // namespace ridgeline::engine
