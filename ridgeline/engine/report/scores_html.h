#pragma once

#include <string>

#include "ridgeline/engine/evaluation.h"

namespace ridgeline::engine {

class Trainer;

// The metrics of the test set after its last evaluation. Of classes: a table of each, and how often
// predictions of each confidence are right. Of values: predicted against true, and what is left
// over.
std::string scores_html(const Evaluation& test, const Trainer& trainer);

}  // namespace ridgeline::engine
