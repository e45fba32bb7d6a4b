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
  // Dropout drops, and batch normalisation takes the batch's statistics and follows them. Without,
  // the layers compute what inference computes.
  bool training = true;
};

// A pass and its outside values; an absent one has id -1. The values of samples have the type of
// the activations, and their shape is [batch, numbers of a sample].
struct LoweredPass {
  Lowered lowered;           // params, tick and step, and what layers keep between steps
  Value x, y;                // read and, if kind is forward, written
  Value dy, dx;              // of gradients: read; written
  std::vector<Value> grads;  // written; as Model::params(), absent of those that are not trained
};

// `options` says batch, precision and seed; the rest of it is not looked at. Throws usage for a
// model whose samples are codes, for half precisions, and for gradients outside of training through
// a layer that has them in training alone.
LoweredPass lower_pass(const Model& model, const LowerOptions& options, const PassOptions& pass);

}  // namespace ridgeline::nn
