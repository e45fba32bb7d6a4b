#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ridgeline/cuda/activation.h"
#include "ridgeline/cuda/plain/sgd.h"
#include "ridgeline/cuda/tile/ordered_bits.h"

// The top of a classifier in one launch: last linear layer, softmax cross-entropy, its gradient,
// the gradient of the layer's input and of the activation below. h is read once, dz written once,
// and each block leaves its share of the sums over the batch (for dw, db, the bias below, the
// loss), which are then added in a fixed order: by launch_head_sums, or inside another function
// (head_sums.cuh).
namespace ridgeline::cuda {

constexpr int kHeadMostClasses = 32;

// With z[n, classes] = h[n, hidden] . w[classes, hidden]^T + b:
//   dl = scale * (softmax(z) - onehot(label));  dz[n, hidden] = (dl . w) * f'(h)
template <typename T>
struct HeadArgs {
  const T *h, *w, *b;  // b may be null
  const int32_t* label;
  T* dz;            // or null:
  void* dz_terms;   // fp16 [n, terms, hidden], which add up to dz / dz_power (fp32 only)
  float* dz_power;  // [hidden]: powers of two
  int terms;
  OrderedBits<T>* dz_most;  // [hidden] or null: raised to the largest |dz| of each unit
  int n, hidden, classes;
  ActivationFn activation;  // the activation whose output is h
  double scale;
  int rows;  // per block
  T* partial;
  double* loss;
  int32_t* correct;
};

// How a head is distributed, and the memory for its partial sums.
struct HeadLayout {
  int rows = 0, parts = 0;
  size_t shared_bytes = 0;
  bool overlap = false;  // the GPU lets a launch start while the previous one ends
  // The elements of one part: dw [classes, hidden], db [classes], the sums over dz [hidden].
  int64_t sums(int hidden, int classes) const {
    return int64_t(classes) * hidden + classes + hidden;
  }
};
// Returns the layout for the current device, without parts if it does not fit on chip.
HeadLayout head_layout(int n, int hidden, int classes, size_t width);

// The sums of the parts, and the weights that they update by SGD.
template <typename T>
struct HeadSums {
  int parts = 0;  // 0: nothing to do
  int hidden = 0, classes = 0;
  const T* partial = nullptr;                     // [parts][sums]
  const double* part_loss = nullptr;              // [parts]
  const int32_t* part_correct = nullptr;          // [parts]
  T *w = nullptr, *w_momentum = nullptr;          // [classes, hidden]
  T *b = nullptr, *b_momentum = nullptr;          // [classes] or null
  T *below = nullptr, *below_momentum = nullptr;  // [hidden], the bias below, or null
  SgdSettings sgd;
  double scale = 1;
  double* loss = nullptr;      // [repeats]
  int32_t* correct = nullptr;  // [repeats] or null
};

// The end of a step beside the sums: a tick to increment when every block has read it, and a
// counter that is zero before and after.
struct StepEnd {
  int32_t* tick = nullptr;
  unsigned* done = nullptr;
};

// Adds the parts and applies the sums.
template <typename T>
cudaError_t launch_head_sums(const HeadSums<T>& sums, const StepEnd& end, const HeadLayout& layout,
                             cudaStream_t stream);

template <typename T>
cudaError_t launch_head(const HeadArgs<T>& args, const HeadLayout& layout, cudaStream_t stream);

}  // namespace ridgeline::cuda
