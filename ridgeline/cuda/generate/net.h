#pragma once

#include <string>
#include <vector>

#include "ridgeline/plan/kernel.h"

namespace ridgeline::cuda::generate {

// What generated kernels multiply with: numbers.cuh has one class for each.
enum class Math : uint8_t { bf16, fp16, tf32, fp32, fp64 };

struct NetLayer {
  const Linear* linear = nullptr;
  const Activation* activation = nullptr;  // null: none
  const Dropout* dropout = nullptr;        // of what the activation gives
  // The updates of its weights and bias: those of SGD or those of Adam; null of an absent bias.
  const SgdUpdate *sgd_w = nullptr, *sgd_b = nullptr;
  const AdamUpdate *adam_w = nullptr, *adam_b = nullptr;

  int64_t in() const { return linear->in(); }
  int64_t out() const { return linear->out(); }
};

// A whole training step of a multilayer perceptron, found in a program.
struct NetStep {
  const Gather *inputs = nullptr, *labels = nullptr;
  std::vector<NetLayer> layers;  // from the input up
  const SoftmaxXent* xent = nullptr;
  const Mse* mse = nullptr;  // one of the two
  Value loss_scale;          // that its gradient is multiplied by; may be absent
  const GlobalNorm* norm = nullptr;
  const Tick* tick = nullptr;
  Value step;                   // that Adam and dropout count from; absent without them
  bool copies = false;          // products read copies of the weights that the updates change
  std::vector<ValueId> inside;  // temporaries, none of which is wanted outside
  Math math = Math::fp32;
  std::string refusal;  // what is different; empty when it matches

  int64_t batch() const { return inputs->y.shape[0]; }
  const Value& loss() const { return xent != nullptr ? xent->loss : mse->loss; }
  const Value& correct() const { return xent != nullptr ? xent->correct : mse->correct; }
  double scale() const { return xent != nullptr ? xent->scale : mse->scale; }
  bool adam() const { return layers.front().adam_w != nullptr; }
  // As updates keep weights (masters, or what products read) and biases.
  DType kept() const { return adam() ? layers[0].adam_w->w.dtype : layers[0].sgd_w->w.dtype; }
};

// The step that the whole of the program is.
NetStep match_net_step(const Rest& rest);

}  // namespace ridgeline::cuda::generate
