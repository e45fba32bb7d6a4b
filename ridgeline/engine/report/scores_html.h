#pragma once

#include <string>

#include "ridgeline/engine/evaluation.h"

namespace ridgeline::engine {

class Trainer;

// Shows the metrics of the test set after its last evaluation. For classes: a table with
// each, and the calibration of predictions. For values: predicted against true, and the
// residuals.
std::string scores_html(const Evaluation& test, const Trainer& trainer);

}  // namespace ridgeline::engine
