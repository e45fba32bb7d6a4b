#pragma once

#include <string>
#include <vector>

#include "ridgeline/plan/impl.h"

namespace ridgeline::cuda {

// A whole training step of a multilayer perceptron, found in a program: gather, linear layers with
// one activation between them, softmax cross-entropy, SGD without momentum, tick.
struct MlpStepOps {
  struct Layer {
    const Linear* linear = nullptr;
    const SgdUpdate *update_w = nullptr, *update_b = nullptr;
  };
  const Gather *images = nullptr, *labels = nullptr;
  std::vector<Layer> layers;  // from the input up
  ActivationKind activation = ActivationKind::relu;
  const SoftmaxXent* loss = nullptr;
  const Tick* tick = nullptr;
  std::vector<ValueId> inside;  // every temporary: nothing outside the step reads one
  size_t ops = 0;
  std::string refusal;  // what is different; empty when it matches
};

// Of the ops from the rest's beginning, which must be the program's.
MlpStepOps match_mlp_step(const Rest& rest);

}  // namespace ridgeline::cuda
