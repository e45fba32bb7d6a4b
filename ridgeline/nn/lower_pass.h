#pragma once

#include <vector>

#include "ridgeline/nn/lower.h"

namespace ridgeline::nn {

// A part of a training step for callers that have a loss and an optimizer of their own.
enum class PassKind {
  forward,    // y = f(x)
  gradients,  // y = f(x) again, and with dL/dy the gradients by x and by the weights
};

struct PassOptions {
  PassKind kind = PassKind::forward;
  // In training, dropout is active, and batch normalisation uses the batch's statistics and updates
  // the running ones. Otherwise the layers compute as in inference.
  bool training = true;
};

// A pass and its external values; an absent one has id -1. Values of samples have the type of the
// activations and the shape [batch, numbers of a sample].
struct LoweredPass {
  Lowered lowered;           // params, tick and step, and what layers keep between steps
  Value x, y;                // read and, if kind is forward, written
  Value dy, dx;              // of gradients: read; written
  std::vector<Value> grads;  // written; like Model::params(), absent if not trained
};

// Uses only batch, precision and seed of `options`. Throws Error(usage) for a model whose samples
// are codes, for half precisions, and for gradients outside of training through a layer that has
// them only in training.
LoweredPass lower_pass(const Model& model, const LowerOptions& options, const PassOptions& pass);

}  // namespace ridgeline::nn
