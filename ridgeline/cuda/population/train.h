#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace ridgeline::cuda {

// Many nets 784-128-classes with ReLU, cross-entropy and SGD, trained at once on one GPU. A thread
// block takes one member through all steps of a launch with its weights in shared memory, as fp16;
// what is computed with is fp32 but for the operands of products. Nothing travels between members,
// so that a member's bits do not depend on the others.
struct PopulationTraining {
  static constexpr int kInputs = 784, kHidden = 128, kMostClasses = 16, kBatch = 128;

  const uint8_t* inputs = nullptr;  // [samples, 784], aligned to 16 bytes
  const int32_t* labels = nullptr;  // [samples]
  // Sample i of step s is order[member * order_stride + s * 128 + i]; a stride of 0 is one order
  // for all members.
  const int32_t* order = nullptr;
  int64_t order_stride = 0;
  const float* rates = nullptr;   // [members, steps]
  const float* decays = nullptr;  // [members]: weight decay, added to the gradients of weights
  __half* w1 = nullptr;           // [members, 128, 784]
  float* b1 = nullptr;            // [members, 128]
  __half* w2 = nullptr;           // [members, classes, 128]
  float* b2 = nullptr;            // [members, classes]
  float* losses = nullptr;        // [members, steps]: means over the batch
  int32_t* corrects = nullptr;    // [members, steps]
  float scale = 1;                // of the bytes
  int classes = 10;
  int members = 0;
  int steps = 0;
};

// Makes `steps` steps of every member. As many blocks as the GPU has SMs; a block takes its members
// one after the other.
cudaError_t train_population(const PopulationTraining& training, cudaStream_t stream);

}  // namespace ridgeline::cuda
