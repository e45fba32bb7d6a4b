#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ridgeline/nn/model.h"

namespace ridgeline::engine {

class Trainer;

// Returns for each layer whether it is frozen, according to train.freeze: numbers of layers, the
// first being 0, or types ("conv2d": all of that type). Throws Error(usage) for anything else.
std::vector<bool> frozen_layers(const std::vector<std::string>& freeze, const nn::Model& model);

// Initialises the trainer from the weights of a model file, a checkpoint or the folder of a run, by
// their names. The last layer with weights is re-initialised if its shapes differ; any other
// difference is Error(usage). Returns messages about it, one per line.
std::vector<std::string> start_from(const std::filesystem::path& file, Trainer& trainer);

}  // namespace ridgeline::engine
