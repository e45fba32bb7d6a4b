#pragma once

#include <memory>

#include "ridgeline/engine/model_io.h"
#include "ridgeline/serve/batcher.h"

namespace ridgeline::serve {

// A model on the device that its config names, with plans for launches of 1, 2, 4, ... `most`
// samples of the type `inputs`. The only place of the server that knows engine::Predictor. Must be
// used where it was made, or, on a CPU, by any one thread at a time.
std::unique_ptr<Engine> make_engine(const engine::LoadedModel& model, DType inputs, int64_t most);

}  // namespace ridgeline::serve
