#pragma once

#include <string>
#include <vector>

#include "ridgeline/nn/loss.h"
#include "ridgeline/nn/model.h"
#include "ridgeline/nn/optimizer.h"
#include "ridgeline/plan/program.h"

namespace ridgeline::nn {

enum class Mode { train, evaluate, infer };

struct LowerOptions {
  Mode mode = Mode::train;
  Precision precision = Precision::fp32;
  int64_t batch = 1;         // rows this rank computes
  int64_t global_batch = 0;  // rows over all ranks; 0: batch
  int64_t row_offset = 0;    // this rank's first row in the global batch
  // More ranks than rows: this one computes a row that counts for nothing.
  bool idle = false;
  int ranks = 0;                      // more than none: gradients are added up over so many
  DType gradient_wire = DType::fp32;  // how fp32 gradients travel: fp32 or bf16
  int64_t repeats = 1;                // steps a launch may make
  // The resident set the batches are gathered from: images [set_rows, item...] uint8, labels int32.
  int64_t set_rows = 1;
  int64_t order_rows = 1;       // extent of the order table
  double scale = 1, shift = 0;  // x = byte * scale + shift
  int64_t classes = 0;          // label values lie in [0, classes)
  // Training only:
  Loss loss = Loss::cross_entropy;
  Optimizer optimizer;
  double clip_norm = 0;  // 0: no clipping
  uint64_t seed = 0;     // of dropout
};

// A program and its outside values; an absent one has id -1.
struct Lowered {
  Program program;
  Value images, labels;  // the resident set
  Value order, first;    // which rows, from where
  Value tick, step, lr;  // what changes between steps
  Value loss, correct;   // [repeats]: train and evaluate
  Value probabilities;   // [batch, classes]: infer, of the last batch run
  Value grad_norm, clipped;
  std::vector<Value> params;  // as Model::params()
  struct State {
    std::string name;  // "0.weight.momentum", "0.weight.m", "0.weight.v"
    Value value;
  };
  std::vector<State> states;  // optimizer state, zero at the start
  std::vector<int> op_layer;  // for each op the layer it belongs to; -1: data, loss or counters
};

// The step as ops: gather, forward, loss, then from the top layer down its gradients and updates
// (all gradients first where clipping needs them), tick. With several ranks: from the top layer
// down its gradients and the start of their sum, then from the top down the waits and updates.
// evaluate: gather, forward, loss and correct, tick. infer: gather, forward, softmax, tick.
Lowered lower(const Model& model, const LowerOptions& options);

}  // namespace ridgeline::nn
