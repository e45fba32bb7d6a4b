#pragma once

#include "ridgeline/engine/model_io.h"

namespace ridgeline::engine {

// The model for sequences of one timestep, with the same weights: what continues a stream timestep
// by timestep when recurrent state is carried. Throws usage for a model that has no recurrent layer
// or in which a layer looks at several timesteps at once.
nn::Model one_step_model(const LoadedModel& loaded);

}  // namespace ridgeline::engine
