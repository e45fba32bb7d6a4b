#pragma once

#include <string>
#include <vector>

#include "ridgeline/plan/impl.h"

namespace ridgeline {

// A whole training step of a multilayer perceptron, found in a program: two gathers, linear layers
// with activations between them, softmax cross-entropy, each layer's gradients used by SGD at once,
// tick. Rows that compute all of it in one go look for it with match_mlp_step.
struct MlpStepOps {
  struct Layer {
    const Linear* linear = nullptr;
    const Activation* activation = nullptr;  // of all but the last
    const SgdUpdate* update_w = nullptr;
    const SgdUpdate* update_b = nullptr;  // null without bias
  };
  const Gather *images = nullptr, *labels = nullptr;
  std::vector<Layer> layers;  // from the input up
  const SoftmaxXent* loss = nullptr;
  const Tick* tick = nullptr;
  bool copies = false;          // the products read copies of the weights that the updates change
  std::vector<ValueId> inside;  // every temporary: nothing outside the step reads one
  size_t ops = 0;
  std::string refusal;  // what is different; empty when it matches
};

// All updates found have the same momentum, decay and learning rate.
MlpStepOps match_mlp_step(const Rest& rest);

}  // namespace ridgeline
