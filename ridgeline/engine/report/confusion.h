#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ridgeline/data/sample_set.h"

namespace ridgeline::engine {

class Trainer;

// Returns height and width if a sample can be shown as a grey image; else zeros.
std::pair<int, int> image_extent(const Shape& sample);

// Returns the confusion matrix over the test set, and samples of the worst confusions if they are
// images.
std::string confusions_html(Trainer& trainer);

}  // namespace ridgeline::engine
