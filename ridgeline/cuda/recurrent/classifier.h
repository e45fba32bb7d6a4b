#pragma once

#include "ridgeline/cuda/recurrent/batch_parallel.h"
#include "ridgeline/cuda/recurrent/split_k_weights.h"

// A classifier of sequences, forward and backward: a recurrent layer, one of its timesteps, a last
// linear layer with few outputs, softmax, loss, and back through time to the gate gradients, in one
// launch. All of it is per sample, so that blocks of different samples never wait for each other.
// launch_split_k_weights then computes the gradients of the weights.
namespace ridgeline::cuda::recurrent {

constexpr int kMostClasses = 32;  // a lane each

template <typename T>
struct ClassifierHead {
  int classes, step;     // the step of the layer whose state is classified
  const T* w;            // [classes, H]
  MixedIn<T> b;          // [classes], optional
  const int32_t* label;  // [B]
  double scale;
  const double* loss_scale;  // [1], multiplies the gradient as well; or null
  T* gradients;              // of the logits, [B, classes]
  SampleScore* scores;       // [B]
};

template <typename T>
struct Classifier {
  BatchParallelForward<T> forward;
  PersistentBackward<T> backward;
  ClassifierHead<T> head;
};

// The forward layout with the shared memory of the whole launch.
BatchParallelLayout classifier_layout(Cell cell, int planes, int steps, int in, int hidden);
template <typename T>
cudaError_t launch_classifier(const Classifier<T>& args, const BatchParallelLayout& layout,
                              cudaStream_t stream);

}  // namespace ridgeline::cuda::recurrent
