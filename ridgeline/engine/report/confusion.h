#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ridgeline/data/image_set.h"

namespace ridgeline::engine {

class Trainer;

// What a model takes the items of a set for.
struct Confusion {
  std::vector<std::vector<int64_t>> counts;  // [true class][given class]
  std::vector<int32_t> given;                // of each item

  struct Pair {
    int32_t truth = 0, given = 0;
    int64_t count = 0;
  };
  std::vector<Pair> worst(size_t most) const;  // wrong pairs, the most frequent first
};
Confusion confusion_of(const std::vector<int32_t>& given, const data::ImageSet& set);

// Height and width of an item that can be shown as a grey image; zeros for any other.
std::pair<int, int> image_extent(const Shape& item);

// The matrix over the test set, and sample images of the worst confusions where items are images.
std::string confusions_html(Trainer& trainer);

}  // namespace ridgeline::engine
