#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ridgeline/nn/model.h"

namespace ridgeline::engine {

class Trainer;

// For each layer whether it keeps its weights, from what train.freeze says: numbers of layers, the
// first being 0, or types ("conv2d": all of that type). Throws usage for what is neither.
std::vector<bool> frozen_layers(const std::vector<std::string>& freeze, const nn::Model& model);

// Gives the trainer the weights of a model file, a checkpoint or the folder of a run, by their
// names. The last layer with weights starts anew where its shapes are others; any other difference
// is Error(usage). Returns what there is to say about it, in lines.
std::vector<std::string> start_from(const std::filesystem::path& file, Trainer& trainer);

}  // namespace ridgeline::engine
