#pragma once

#include <string>
#include <vector>

#include "ridgeline/plan/kernel.h"

namespace ridgeline {

// A whole training step of a multilayer perceptron, found in a program: two gathers, linear layers
// with activations between them, softmax cross-entropy, gradients used by an optimizer, each
// layer's at once or after the last, tick. Kernels that compute all of it in one go look for it
// with match_mlp_step.
struct MlpStepOps {
  struct Layer {
    const Linear* linear = nullptr;
    const Activation* activation = nullptr;  // of all but the last
    const Dropout* dropout = nullptr;        // of the activation's output
    // Those of SGD or those of Adam; null of the bias where there is none.
    const SgdUpdate *update_w = nullptr, *update_b = nullptr;
    const AdamUpdate *adam_w = nullptr, *adam_b = nullptr;
  };
  const Gather *images = nullptr, *labels = nullptr;
  std::vector<Layer> layers;  // from the input up
  const SoftmaxXent* loss = nullptr;
  const Tick* tick = nullptr;
  Value step;                   // that Adam and dropout count from; absent without them
  bool copies = false;          // the products read copies of the weights that the updates change
  std::vector<ValueId> inside;  // every temporary: nothing outside the step reads one
  size_t ops = 0;
  std::string refusal;  // what is different; empty when it matches
};

// What a kernel takes besides plain layers and SGD.
struct MlpStepExtras {
  bool adam = false, dropout = false;
};

// All updates found are of one kind, with the same constants and learning rate.
MlpStepOps match_mlp_step(const Rest& rest, MlpStepExtras extras = {});

}  // namespace ridgeline
