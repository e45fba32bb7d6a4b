#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ridgeline/plan/kernel.h"

namespace ridgeline {

// A whole training step of a multilayer perceptron, found in a program: two gathers, linear layers
// with normalisations, activations and dropout between them, a loss, gradients and optimizer
// updates (each layer's at once, or all after the last gradient), and the tick. Convolutions may
// come before the linear layers. Kernels that compute the whole step find it with match_mlp_step.
struct MlpStepOps {
  // A normalisation of a linear layer's output: over the outputs of a sample (one run, centred or
  // not), or over the batch.
  struct Norm {
    const LayerNorm* layer = nullptr;
    const GroupNorm* group = nullptr;
    const BatchNorm* batch = nullptr;
    const SgdUpdate *sgd_gamma = nullptr, *sgd_beta = nullptr;
    const AdamUpdate *adam_gamma = nullptr, *adam_beta = nullptr;

    explicit operator bool() const { return layer || group || batch; }
    // Calls f with the op that is present.
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
    Norm norm{};                             // of the linear layer's output; may be absent
    const Activation* activation = nullptr;  // null: none, as after the last layer
    const Dropout* dropout = nullptr;        // of the activation's output
    // The updates of its weights and bias, by SGD or by Adam; null for an absent bias.
    const SgdUpdate *sgd_w = nullptr, *sgd_b = nullptr;
    const AdamUpdate *adam_w = nullptr, *adam_b = nullptr;

    int64_t in() const { return linear->in(); }
    int64_t out() const { return linear->out(); }
  };
  // A convolution with batch normalisation, an activation and a maximum over windows that tile the
  // image behind it, each of which may be absent.
  struct Convolution {
    const Conv2d* conv = nullptr;
    Norm norm{};  // over the batch
    const Activation* activation = nullptr;
    const MaxPool* pool = nullptr;
    const SgdUpdate *sgd_w = nullptr, *sgd_b = nullptr;
    const AdamUpdate *adam_w = nullptr, *adam_b = nullptr;
  };
  std::optional<Gather> inputs;            // present in every step
  const GatherAugment* augment = nullptr;  // null: none; `inputs` has what it shares with a gather
  const Gather* targets = nullptr;
  std::vector<Convolution> convolutions;  // from the input up, below the layers
  std::vector<Layer> layers;              // from the input up
  // One of the three is set; cross-entropy has no class weights and no smoothing.
  const SoftmaxXent* xent = nullptr;
  const Mse* mse = nullptr;
  const ElementwiseLoss* elementwise = nullptr;
  Value loss_scale;                  // a factor of the loss's gradient; may be absent
  const GlobalNorm* norm = nullptr;  // used by the updates; may be absent
  const Tick* tick = nullptr;
  Value step;                   // step count for Adam and dropout; absent without them
  bool copies = false;          // the products read copies of the weights that the updates change
  std::vector<ValueId> inside;  // every temporary: nothing outside the step reads one
  size_t ops = 0;
  std::string refusal;  // what is different; empty when it matches

  int64_t batch() const { return inputs->y.shape[0]; }
};

// The options that a kernel supports besides bytes with labels, linear layers with an activation
// after all but the last, softmax cross-entropy and SGD. Images of convolutions may be augmented.
struct MlpStepExtras {
  bool adam = false, dropout = false;
  bool bare_layers = false;  // hidden layers without activation
  bool floats = false;       // sets of fp32
  bool losses = false;       // of labels or of values
  bool norm = false;         // clipping, and a scale of the loss
  bool norms = false;        // normalisations of layers
  bool convolutions = false;
};

// Requires all updates to be of one kind, with the same constants and learning rate.
MlpStepOps match_mlp_step(const RemainingOps& rest, MlpStepExtras extras = {});

}  // namespace ridgeline
