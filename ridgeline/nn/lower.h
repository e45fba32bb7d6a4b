#pragma once

#include <string>
#include <vector>

#include "ridgeline/nn/loss.h"
#include "ridgeline/nn/model.h"
#include "ridgeline/nn/optimizer.h"
#include "ridgeline/plan/program.h"

namespace ridgeline::nn {

enum class Mode { train, evaluate, infer };

// What a run in bf16 or fp16 keeps its weights in. master: fp32, and of each weight that is a
// factor of products (of two dimensions or more) a copy in the half type, which the products read;
// biases are added in fp32. half: the half type, biases too. Optimizer state is in fp32 either way:
// squares of gradients underflow in a half.
enum class WeightKind { master, half };

// What the gradient of the loss is multiplied by, so that small gradients survive in fp16. dynamic:
// halved when a gradient overflows, whose step is skipped, and doubled after `growth` good ones.
struct LossScale {
  enum class Kind { none, fixed, dynamic } kind = Kind::none;
  double start = 65536;
  int64_t growth = 2000;  // of dynamic

  bool operator==(const LossScale&) const = default;
};

struct LowerOptions {
  Mode mode = Mode::train;
  Precision precision = Precision::fp32;
  Precision accumulate = Precision::fp32;   // or fp16 (Program::accumulate)
  WeightKind weights = WeightKind::master;  // of bf16 and fp16
  int64_t batch = 1;                        // samples this rank computes
  int64_t global_batch = 0;                 // samples over all ranks; 0: batch
  int64_t sample_offset = 0;                // this rank's first sample in the global batch
  bool idle = false;  // more ranks than samples: this one computes a sample that counts for nothing
  int ranks = 0;      // more than none: gradients are added up over so many
  DType gradient_wire = DType::fp32;  // how fp32 gradients travel: fp32 or bf16
  int64_t repeats = 1;                // steps a launch may make
  // The resident set that batches are gathered from: inputs [set_samples, sample...] and targets.
  int64_t set_samples = 1;
  DType set_inputs = DType::uint8;   // or fp32, which is not scaled
  DType set_targets = DType::int32;  // classes; or fp32: values, as many as the model's outputs
  int64_t order_samples = 1;         // extent of the order table
  double scale = 1, shift = 0;       // x = byte * scale + shift
  int64_t classes = 0;               // label values lie in [0, classes)
  int64_t targets = 1;               // labels a sample: one, or one a timestep of a sequence
  bool lengths = false;      // samples are sequences of their own lengths, given with the set
  bool carry_state = false;  // sample i of a batch continues sample i of the one before
  bool predictions = false;  // infer: the largest class of each sample too
  // Training only:
  Loss loss;  // of a model without heads, which have losses of their own
  Optimizer optimizer;
  double clip_norm = 0;  // 0: no clipping
  LossScale loss_scale;
  uint64_t seed = 0;       // of dropout
  Augmentation augment;    // of the images, when it does anything
  bool recompute = false;  // activation checkpointing: less memory, for a part of the forward pass
  std::vector<bool> frozen;  // by layer: its weights get neither gradients nor updates; empty: none
  // Evaluation only:
  bool outputs = false;  // the outputs of the last batch too, as infer gives them
};

// A program and its outside values; an absent one has id -1.
struct Lowered {
  Program program;
  Value inputs, targets;  // the resident set
  Value order, first;     // which samples, from where
  Value epoch;            // [1] int64: where images are augmented
  Value tick, step, lr;   // what changes between steps
  Value loss, correct;    // [repeats]: train and evaluate; correct is absent if targets are values
  std::vector<Value> head_losses;  // [repeats] of each head; `loss` is their sum
  // [batch * targets, classes]: infer (evaluate: where asked for), of the last batch run.
  // Probabilities of a model that was trained with cross-entropy; of any other what its last layer
  // gives, in that layer's type, as probabilities of their own where the loss is binary
  // cross-entropy. Of a model with heads what these give, one after the other.
  Value outputs;
  Value predictions;  // [batch * targets] int32: infer, where asked for
  Value grad_norm, clipped;
  Value loss_scale, skipped;  // the scale of this moment, steps it made to be skipped
  // As Model::params(), but in the type that this program has them in: to train, the type they are
  // kept in; otherwise the type that products read.
  std::vector<Value> params;
  struct Copy {
    size_t param = 0;
    Value value;
  };
  struct Constant {
    Value value;  // fp64
    std::vector<double> numbers;
  };
  std::vector<Constant> constants;  // filled once, before the first step
  std::vector<Copy> copies;         // follow from the weights: filled when those are, never saved
  struct State {
    std::string name;  // "0.weight.momentum", "0.weight.m", "loss_scale"
    Value value;
    double start = 0;  // of every element
  };
  std::vector<State> states;  // of the optimizer, of the loss scale; in training, carried state
  struct Carried {
    std::string name;
    Value value, next;
  };
  std::vector<Carried> carried;  // recurrent state from batch to batch
  Value lengths, batch_lengths;  // of the resident set, of the batch
  std::vector<int> op_layer;     // for each op the layer it belongs to; -1: data, loss or counters
};

// The step as ops: gather, forward, loss, then from the top layer down its gradients and updates
// (all gradients first where clipping or a loss scale needs them), tick. With several ranks: from
// the top layer down its gradients and the start of their sum, then from the top down the waits and
// updates. evaluate: gather, forward, loss and correct, tick. infer: gather, forward, softmax
// (a copy or a sigmoid for other losses than cross-entropy), tick.
Lowered lower(const Model& model, const LowerOptions& options);

}  // namespace ridgeline::nn
