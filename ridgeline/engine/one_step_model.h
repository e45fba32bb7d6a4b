#pragma once

#include "ridgeline/engine/model_io.h"

namespace ridgeline::engine {

// Returns the model for sequences of one timestep, with the same weights: it continues a stream
// timestep by timestep while recurrent state is carried. Throws Error(usage) for a model without a
// recurrent layer or with a layer that reads several timesteps at once.
nn::Model one_step_model(const LoadedModel& loaded);

}  // namespace ridgeline::engine
