#pragma once

#include <optional>
#include <vector>

#include "ridgeline/nn/model.h"

namespace ridgeline::nn {

// A model for inference alone, and the number that each of its layers has in the one it was made
// of.
struct FoldedModel {
  Model model;
  std::vector<int> layers;
};

// Puts batch normalisations into the weights and biases of the convolutions and linear layers that
// they alone read: with s = gamma / sqrt(var + epsilon), w' = w s and b' = (b - mean) s + beta.
// None: there is no such layer.
std::optional<FoldedModel> fold_norms(const Model& model);

}  // namespace ridgeline::nn
