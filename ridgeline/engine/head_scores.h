#pragma once

#include <span>
#include <string>
#include <vector>

#include "ridgeline/data/sample_set.h"
#include "ridgeline/engine/scores.h"
#include "ridgeline/nn/model.h"

namespace ridgeline::engine {

// The results of one of a net's several outputs.
struct HeadScores {
  std::string name;
  double accuracy = Scores::kNone;  // in [0, 1]; NaN if it learns values
  Scores scores{};
};

// Scores all heads; `outputs` and the set's targets have them side by side. `units` as in
// score_values, one for each number of a target.
std::vector<HeadScores> score_heads(const nn::Model& model, const data::SampleSet& set,
                                    std::span<const float> outputs, std::span<const double> units);

// "head value: mse 0.1, mae 0.2, r2 0.9"
std::string to_text(const HeadScores& head);

}  // namespace ridgeline::engine
