#pragma once

#include <string>
#include <vector>

#include "ridgeline/plan/kernel.h"

namespace ridgeline {

// A whole training step of a multilayer perceptron, found in a program: two gathers, linear layers
// with normalisations, activations and dropout between them, a loss, gradients used by an
// optimizer, each layer's at once or after the last, tick. Kernels that compute all of it in one go
// look for it with match_mlp_step.
struct MlpStepOps {
  // A normalisation behind a linear layer: over its outputs of a sample (one run, centred or not),
  // or over the batch.
  struct Norm {
    const LayerNorm* layer = nullptr;
    const GroupNorm* group = nullptr;
    const BatchNorm* batch = nullptr;
    const SgdUpdate *sgd_gamma = nullptr, *sgd_beta = nullptr;
    const AdamUpdate *adam_gamma = nullptr, *adam_beta = nullptr;

    explicit operator bool() const { return layer || group || batch; }
    // f of whichever op it is.
    template <typename F>
    auto visit(F f) const {
      return layer != nullptr ? f(*layer) : group != nullptr ? f(*group) : f(*batch);
    }
    Value gamma() const {
      return visit([](const auto& op) { return op.gamma; });
    }
    Value beta() const {
      return visit([](const auto& op) { return op.beta; });
    }
    double epsilon() const {
      return visit([](const auto& op) { return op.epsilon; });
    }
    bool centred() const { return group == nullptr || group->centred; }
  };
  struct Layer {
    const Linear* linear = nullptr;
    Norm norm{};                             // of what the linear layer gives; may be absent
    const Activation* activation = nullptr;  // null: none, as after the last layer
    const Dropout* dropout = nullptr;        // of what the activation gives
    // The updates of its weights and bias: those of SGD or those of Adam; null of an absent bias.
    const SgdUpdate *sgd_w = nullptr, *sgd_b = nullptr;
    const AdamUpdate *adam_w = nullptr, *adam_b = nullptr;

    int64_t in() const { return linear->in(); }
    int64_t out() const { return linear->out(); }
  };
  const Gather *inputs = nullptr, *targets = nullptr;
  std::vector<Layer> layers;  // from the input up
  // One of the three; cross-entropy without class weights and smoothing.
  const SoftmaxXent* xent = nullptr;
  const Mse* mse = nullptr;
  const ElementwiseLoss* elementwise = nullptr;
  Value loss_scale;                  // that its gradient is multiplied by; may be absent
  const GlobalNorm* norm = nullptr;  // that the updates follow; may be absent
  const Tick* tick = nullptr;
  Value step;                   // that Adam and dropout count from; absent without them
  bool copies = false;          // the products read copies of the weights that the updates change
  std::vector<ValueId> inside;  // every temporary: nothing outside the step reads one
  size_t ops = 0;
  std::string refusal;  // what is different; empty when it matches

  int64_t batch() const { return inputs->y.shape[0]; }
};

// What a kernel takes besides bytes with labels, linear layers with an activation behind all but
// the last, softmax cross-entropy and SGD.
struct MlpStepExtras {
  bool adam = false, dropout = false;
  bool bare_layers = false;  // hidden layers without activation
  bool floats = false;       // sets of fp32
  bool losses = false;       // of labels or of values
  bool norm = false;         // clipping, and a scale of the loss
  bool norms = false;        // normalisations of layers
};

// All updates found are of one kind, with the same constants and learning rate.
MlpStepOps match_mlp_step(const Rest& rest, MlpStepExtras extras = {});

}  // namespace ridgeline
