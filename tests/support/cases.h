#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/support/arrays.h"

namespace ridgeline::test {

// A program, or a part of one, with numbers to run it on.
struct Case {
  std::string name;
  Program program;
  std::map<ValueId, Fill> fills;       // of the values it reads; normal(1) when not named
  int64_t steps = 1;                   // passes, for kernels that cover the whole program
  std::map<ValueId, ValueId> copy_of;  // values that start as another one, rounded to their type

  // Every value, with those that are read before they are written filled in.
  Arrays inputs(uint64_t seed = 1) const;
};
using Cases = std::vector<Case>;

// Cases for each op alone, on ordinary and awkward shapes, with float values of this dtype.
Cases op_cases(DType dtype);
// Ops that kernels like to fuse: linear and activation, loss and gradient, backward and update.
Cases fused_cases(DType dtype);
// For bf16 and fp16: ops that mix the half type with fp32 (biases, gradients, weights with copies).
Cases mixed_cases(DType dtype);
// Whole training steps of small networks, some with several steps per launch.
Cases training_cases(DType dtype);
// Recurrent layers, embeddings and the ops around them: each op alone (part of op_cases), and
// forward and backward passes of a layer.
Cases recurrent_op_cases(DType dtype);
Cases recurrent_cases(DType dtype);
// Recurrent layers with more hidden units than a tile has, for kernels that distribute them over a
// GPU.
Cases wide_recurrent_cases(DType dtype);
// Gradients of weights over more rows, and with more columns, than the CPU's products take at once.
Cases long_recurrent_cases(DType dtype);
// A layer whose weights fill a GPU's chip or do not fit on it, forward, and with its gradients.
Case large_rnn_case(DType dtype, CellKind cell, int64_t steps, int64_t batch, int64_t hidden);
Case large_rnn_training_case(DType dtype, CellKind cell, int64_t steps, int64_t batch,
                             int64_t hidden);
// Element-wise losses and weighted cross-entropy, group and root-mean-square normalisation (parts
// of op_cases).
Cases loss_cases(DType dtype);
Cases group_norm_cases(DType dtype);
// Values that are joined and rearranged (part of op_cases).
Cases join_cases(DType dtype);
Cases rearrange_cases(DType dtype);
// Convolutions over characters, the index of the largest class (part of op_cases).
Cases text_op_cases(DType dtype);
// Whole networks for inference of up to eight samples, in fp32: perceptrons and recurrent networks,
// with and without state that is kept between calls.
Cases inference_cases();
// Convolutional nets of up to nine samples as inference has them, in fp32.
Cases conv_inference_cases();
// A perceptron for n samples of these widths, whose samples are bytes.
Case inference_case(int64_t n, const std::vector<int64_t>& widths, DType dtype);
// Training steps with more samples than a tile of a matrix product.
Cases tall_training_cases(DType dtype);
// Steps of perceptrons with norms behind their hidden layers, and with clipped gradients.
Cases normed_training_cases(DType dtype);
// All of the above except the tall and the wide ones.
Cases all_cases(DType dtype);
// Blocks of 1-D convolution networks for inference, with numbers of channels that the kernels
// support.
Cases small_signal_cases(DType dtype);
// Such blocks in sequence.
Case signal_net_case(DType dtype);

constexpr DType kFloats[] = {DType::fp64, DType::fp32, DType::bf16, DType::fp16};
constexpr ActivationKind kActivations[] = {
    ActivationKind::relu, ActivationKind::tanh,     ActivationKind::sigmoid,
    ActivationKind::gelu, ActivationKind::silu,     ActivationKind::leaky_relu,
    ActivationKind::elu,  ActivationKind::softplus, ActivationKind::hardswish};
constexpr LossFn kLossFns[] = {LossFn::mae, LossFn::huber, LossFn::bce_with_logits,
                               LossFn::quantile};

// Builds a case value by value.
class CaseBuilder {
 public:
  CaseBuilder(std::string name, DType dtype);

  // Float values of the case's dtype.
  Value in(std::string name, const Shape& shape, Fill fill = normal(1));
  Value param(std::string name, const Shape& shape, Fill fill = normal(1));
  Value state(std::string name, const Shape& shape, Fill fill = normal(1));
  Value temp(std::string name, const Shape& shape);
  Value out(std::string name, const Shape& shape);
  // In the accumulator dtype: fp32, or fp64 in an fp64 case. Used for optimizer state and fp32
  // gradients.
  Value accumulator(std::string name, const Shape& shape, Role role, Fill fill = normal(1));
  Value copy(const Value& w);  // of the case's dtype
  Value loss_scale(double value);
  // Any dtype.
  Value make(std::string name, DType dtype, const Shape& shape, Role role, Fill fill,
             int64_t below = 1);
  Value labels(const Shape& shape, int64_t classes);
  // Values that change between steps; made on first use. Single ops run at the third of four steps.
  Value tick();
  Value step();
  Value lr();
  Value loss();
  Value correct();

  void repeats(int64_t count, int64_t start_tick);  // before any of the above
  void add(Op op) { case_.program.add(std::move(op)); }
  // An update of w by dw: "sgd", "momentum", "nesterov" or "adam", "adamw".
  void add_update(const std::string& how, const Value& w, const Value& dw,
                  const Value& grad_scale = {}, const Value& copy = {});
  Case done(int64_t steps = 1);

 private:
  Case case_;
  DType dtype_;
  int64_t start_tick_ = 2;
  Value tick_, step_, lr_, loss_, correct_, loss_scale_;
};

}  // namespace ridgeline::test
