#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "ridgeline/core/shape.h"

namespace ridgeline::engine {

struct InferReport;

// Gathers what the page about an inference run shows, as its results come: how often each label was
// given, how sure the model was, and the samples it was least sure of.
class InferPage {
 public:
  // Outputs are `probabilities`, or values of any size.
  InferPage(int64_t classes, const Shape& sample, bool probabilities);

  void add(int64_t index, int64_t label, std::span<const double> outputs,
           std::span<const uint8_t> sample);
  // report.html in `folder`.
  void write(const std::filesystem::path& folder, const InferReport& report,
             const std::string& model, const std::string& input, const std::string& machine) const;

 private:
  struct Doubt {
    int64_t index, label, second;
    double output, second_output;
    double certainty;  // the probability; of other outputs the distance of the two largest
    std::vector<uint8_t> sample;
  };

  Shape sample_;
  bool probabilities_;
  std::vector<int64_t> labels_;     // how often each was given
  std::vector<int64_t> certainty_;  // tenths of the probability of the label given, if it is one
  std::vector<Doubt> doubts_;       // the least sure first
};

}  // namespace ridgeline::engine
