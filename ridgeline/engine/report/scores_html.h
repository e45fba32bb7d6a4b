#pragma once

#include <string>

#include "ridgeline/engine/evaluation.h"

namespace ridgeline::engine {

class Trainer;

// Shows the metrics of the test set after its last evaluation. A classifier has a
// table of its classes and the calibration of its predictions; values have a plot of predicted
// against true ones, and the residuals.
std::string scores_html(const Evaluation& test, const Trainer& trainer);

}  // namespace ridgeline::engine
