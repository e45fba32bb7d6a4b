#pragma once

#include "ridgeline/engine/ladder/ladder.h"

namespace ridgeline::engine {

// The character-level classifier: 1014 of 70 symbols, six convolutions, three linear layers. The
// founding record went from 2.12 to 15,872 inputs per second, the latter on sixteen GPUs of four
// nodes.
Ladder charcnn_ladder();

}  // namespace ridgeline::engine
