#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace ridgeline::cuda {

// Whole training steps of perceptrons with one hidden layer (ReLU, cross-entropy) in one launch,
// for one net or for many at once: a cluster of blocks trains a member, and nothing travels between
// members, so that a member's bits do not depend on the others.
//
//   y = w2 relu(w1 x + b1) + b2,  w -= lr (dw + decay w), or momentum or Adam
//
// A block keeps its units of the first layer in shared memory for all steps of a launch.
enum class PopulationNumbers : int32_t {
  fp16,  // weights are of this type
  bf16,
  fp16_masters,  // weights are fp32, rounded for products
  bf16_masters,
  tf32,  // fp32 weights; products take factors of 11 bits, as fp16 numbers times a power of two
};

enum class PopulationRule : int32_t { sgd, momentum, adam };

struct PopulationShape {
  int inputs = 0, hidden = 0, classes = 0, batch = 0;
  PopulationNumbers numbers = PopulationNumbers::fp16;
  PopulationRule rule = PopulationRule::sgd;  // other than sgd: with fp32 weights only
};

// One layer of a member: its weights [out, in] and biases [out], of the half type or fp32.
struct MemberLayer {
  void *w = nullptr, *b = nullptr;
  void* copy = nullptr;                  // of w in the half type, written; with masters only
  float *m_w = nullptr, *m_b = nullptr;  // of momentum and Adam
  float *v_w = nullptr, *v_b = nullptr;  // of Adam
};

// Device pointers of a member. Sample i of step s is order[*first + (*tick + s) * batch + i]; its
// input is byte * scale. lr, loss and correct have an entry for each step, from *tick on.
struct MemberArgs {
  const uint8_t* inputs = nullptr;  // [samples, inputs], aligned to 16 bytes
  const int32_t *labels = nullptr, *order = nullptr;
  const int64_t *first = nullptr, *step = nullptr;  // step: of Adam, made before *tick was 0
  int32_t* tick = nullptr;                          // the launch adds its steps
  const double* lr = nullptr;
  double* loss = nullptr;  // means over the batch
  int32_t* correct = nullptr;
  MemberLayer layers[2];
  float scale = 1;
  float decay = 0, momentum = 0, epsilon = 0;
  double beta1 = 0, beta2 = 0;
  bool nesterov = false;
  bool decoupled = false;  // decay as AdamW has it
  int steps = 0;
};

// How a launch is laid out; `refusal` says why not where it is not empty.
struct PopulationLayout {
  int units = 0;   // of the hidden layer, of a block
  int blocks = 0;  // of a member's cluster
  size_t shared_bytes = 0;
  std::string refusal;
};

// `fewest_blocks`: more blocks a member are faster for few members, fewer for many.
PopulationLayout population_layout(const PopulationShape& shape, bool fewest_blocks);

// Trains `count` members, each for its steps. `members` is device memory; where it is null, one
// member whose arguments are `one`.
cudaError_t train_population(const PopulationShape& shape, const PopulationLayout& layout,
                             const MemberArgs* members, int count, const MemberArgs& one,
                             cudaStream_t stream);

}  // namespace ridgeline::cuda
