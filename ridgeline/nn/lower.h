#pragma once

#include <string>
#include <vector>

#include "ridgeline/nn/loss.h"
#include "ridgeline/nn/model.h"
#include "ridgeline/nn/optimizer.h"
#include "ridgeline/plan/program.h"

namespace ridgeline::nn {

enum class Mode { train, evaluate, infer };

// The type of the weights in a run in bf16 or fp16. master: fp32, with a copy in the half type of
// each weight that is a factor of products (two dimensions or more), which the products read;
// biases are added in fp32. half: the half type, biases too. Optimizer state is in fp32 either way,
// because squares of gradients underflow in a half type.
enum class WeightKind { master, half };

// The factor of the loss's gradient that lets small gradients survive in fp16. dynamic: halved if a
// gradient overflows, whose step is skipped, and doubled after `growth` good steps.
struct LossScale {
  enum class Kind { none, fixed, dynamic } kind = Kind::none;
  double start = 65536;
  int64_t growth = 2000;  // good steps before dynamic doubles it

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
  bool idle = false;                  // more ranks than samples: this one's sample has no effect
  int ranks = 0;                      // if above 0: gradients are summed over this many ranks
  DType gradient_wire = DType::fp32;  // type in which fp32 gradients are sent: fp32 or bf16
  int64_t repeats = 1;                // steps a launch may make
  // The resident set that batches are gathered from: inputs [set_samples, sample...] and targets.
  int64_t set_samples = 1;
  DType set_inputs = DType::uint8;   // or fp32, which is not scaled
  DType set_targets = DType::int32;  // classes; or fp32: values, one per output of the model
  int64_t order_samples = 1;         // extent of the order table
  double scale = 1, shift = 0;       // x = byte * scale + shift
  int64_t classes = 0;               // label values lie in [0, classes)
  int64_t targets = 1;               // labels per sample: one, or one per timestep of a sequence
  bool lengths = false;              // samples are sequences with lengths, given with the set
  bool sample_weights = false;       // samples count as much as the set says, in training
  bool carry_state = false;          // sample i of a batch continues sample i of the one before
  bool predictions = false;          // infer: also the class with the largest output
  // The following are for training only.
  Loss loss;  // of a model without heads; each head has its own loss
  Optimizer optimizer;
  double clip_norm = 0;  // 0: no clipping
  LossScale loss_scale;
  uint64_t seed = 0;         // of dropout
  Augmentation augment;      // of the images, when it does anything
  bool recompute = false;    // activation checkpointing: repeats part of the forward pass
  std::vector<bool> frozen;  // by layer: its weights get neither gradients nor updates; empty: none
  // The following is for evaluation only.
  bool outputs = false;  // also the outputs of the last batch, as in infer
};

// A program and its external values; an absent one has id -1.
struct Lowered {
  Program program;
  Value inputs, targets;  // the resident set
  Value order, first;     // the order of samples, and where the launch begins
  Value epoch;            // [1] int64: if images are augmented
  Value tick, step, lr;   // values that change between steps
  Value loss, correct;    // [repeats]: train and evaluate; correct is absent if targets are values
  std::vector<Value> head_losses;  // [repeats] of each head; `loss` is their sum
  // [batch * targets, classes]: infer (and evaluate, on request), for the last batch run.
  // Probabilities if the model was trained with cross-entropy; otherwise the last layer's output in
  // its own type, after a sigmoid if the loss is binary cross-entropy. The
  // outputs of heads stand side by side.
  Value outputs;
  Value predictions;  // [batch * targets] int32: infer, on request
  Value grad_norm, clipped;
  Value loss_scale, skipped;  // the current scale, and the number of steps skipped because of it
  // Like Model::params(), but in this program's type: for training, the type in which they are
  // kept; otherwise the type that products read.
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
  std::vector<Copy> copies;         // computed from the weights whenever those change; never saved
  struct State {
    std::string name;  // "0.weight.momentum", "0.weight.m", "loss_scale"
    Value value;
    double start = 0;  // initial value of every element
  };
  std::vector<State> states;  // of the optimizer and the loss scale; in training also carried state
  struct CarriedState {
    std::string name;
    Value value, next;
  };
  std::vector<CarriedState> carried;  // recurrent state carried from batch to batch
  Value lengths, batch_lengths;       // of the resident set, of the batch
  Value sample_weights;               // of the resident set
  std::vector<int> op_layer;  // for each op the layer it belongs to; -1: data, loss or counters
};

// Returns the step as ops: gather, forward, loss, then from the top layer down its gradients and
// updates (all gradients first if clipping or a loss scale needs them), tick. With several ranks:
// from the top layer down its gradients and the start of their sum, then from the top down the
// waits and updates. evaluate: gather, forward, loss and correct, tick. infer: gather, forward,
// softmax
// (a copy or a sigmoid for losses other than cross-entropy), tick.
Lowered lower(const Model& model, const LowerOptions& options);

}  // namespace ridgeline::nn
