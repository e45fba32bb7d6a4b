#pragma once

#include "ridgeline/engine/ladder/ladder.h"

namespace ridgeline::engine::testing {

// A small perceptron; the caller adds the rungs.
inline Ladder ladder_without_rungs() {
  Ladder ladder;
  ladder.name = "small";
  ladder.network = R"([model]
layers = [{ type = "linear", out = 12 }, { type = "relu" }, { type = "linear", out = 4 }]
[train]
optimizer = { type = "sgd", lr = 0.01 }
)";
  ladder.sample = Shape{5, 5};
  ladder.classes = 4;
  ladder.batch = 8;
  return ladder;
}

}  // namespace ridgeline::engine::testing
