#pragma once

#include <optional>
#include <vector>

#include "ridgeline/nn/model.h"

namespace ridgeline::nn {

// A model for inference only, and for each of its layers the number of that layer in the original
// model.
struct FoldedModel {
  Model model;
  std::vector<int> layers;
};

// Folds batch normalisations into the weights and biases of the convolutions and linear layers
// whose only readers they are: with s = gamma / sqrt(var + epsilon), w' = w s and b' = (b - mean) s
// + beta. Returns nothing if there is no such layer.
std::optional<FoldedModel> fold_norms(const Model& model);

}  // namespace ridgeline::nn
