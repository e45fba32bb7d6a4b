#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace ridgeline::cuda {

// Whole training steps of perceptrons with one hidden layer (ReLU, cross-entropy) in one launch,
// for one network or for many at once: a cluster of blocks trains a member. Members exchange
// nothing, so a member's bits do not depend on the others.
//
//   y = w2 relu(w1 x + b1) + b2,  w -= lr (dw + decay w), or momentum or Adam
//
// A block keeps its units of the first layer in shared memory for all steps of a launch.
enum class PopulationNumbers : int32_t {
  fp16,  // weights have this type
  bf16,
  fp16_masters,  // weights are fp32, and are rounded for products
  bf16_masters,
  tf32,  // fp32 weights; products take factors of 11 bits, as fp16 values times a power of two
};

enum class PopulationRule : int32_t { sgd, momentum, adam };

struct PopulationShape {
  int inputs = 0, hidden = 0, classes = 0, batch = 0;
  PopulationNumbers numbers = PopulationNumbers::fp16;
  PopulationRule rule = PopulationRule::sgd;  // all rules but sgd need fp32 weights
};

// One layer of a member: its weights [out, in] and biases [out], in the half type or fp32.
struct MemberLayer {
  void *w = nullptr, *b = nullptr;
  void* copy = nullptr;                  // written: w in the half type; with master weights only
  float *m_w = nullptr, *m_b = nullptr;  // for momentum and Adam
  float *v_w = nullptr, *v_b = nullptr;  // for Adam
};

// Device pointers of a member. Sample i of step s is order[*first + (*tick + s) * batch + i]; its
// input is byte * scale. lr, loss and correct have an entry for each step, from *tick on.
struct MemberArgs {
  const uint8_t* inputs = nullptr;  // [samples, inputs], aligned to 16 bytes
  const int32_t *labels = nullptr, *order = nullptr;
  const int64_t *first = nullptr, *step = nullptr;  // step: Adam steps made before *tick was 0
  int32_t* tick = nullptr;                          // the launch adds the number of its steps
  const double* lr = nullptr;
  double* loss = nullptr;  // means over the batch
  int32_t* correct = nullptr;
  MemberLayer layers[2];
  float scale = 1;
  float decay = 0, momentum = 0, epsilon = 0;
  double beta1 = 0, beta2 = 0;
  bool nesterov = false;
  bool decoupled = false;  // decoupled decay, as in AdamW
  int steps = 0;
};

// The layout of a launch; if `refusal` is not empty, it says why there is none.
struct PopulationLayout {
  int units = 0;   // units of the hidden layer per block
  int blocks = 0;  // blocks per member
  size_t shared_bytes = 0;
  std::string refusal;
};

// `fewest_blocks`: fewer blocks per member are faster for many members; more are faster for few.
PopulationLayout population_layout(const PopulationShape& shape, bool fewest_blocks);

// Trains `count` members, each for its number of steps. `members` is device memory; if it is null,
// one member is trained whose arguments are `one`.
cudaError_t train_population(const PopulationShape& shape, const PopulationLayout& layout,
                             const MemberArgs* members, int count, const MemberArgs& one,
                             cudaStream_t stream);

}  // namespace ridgeline::cuda
