#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ridgeline/data/sample_set.h"

namespace ridgeline::engine {

class Trainer;

// Height and width of a sample that can be shown as a grey image; zeros for any other.
std::pair<int, int> image_extent(const Shape& sample);

// The matrix over the test set, and sample images of the worst confusions if samples are images.
std::string confusions_html(Trainer& trainer);

}  // namespace ridgeline::engine
