#pragma once

#include <cstdint>

#include "ridgeline/core/thread_pool.h"
#include "ridgeline/cpu/simd/gemm.h"
#include "ridgeline/cpu/simd/layout.h"

// The parts of a training step around its products: gathering batches, changes of layout, the loss.
// As in gemm.h, each call computes a sub-range on the calling thread.
namespace ridgeline::cpu::simd {

// x[r, f] = set[order[r] * features + f] * scale + shift, in both layouts; floats are not scaled
template <typename T>
struct GatherArgs {
  const uint8_t* set;    // [N, features]; null with floats
  const int32_t* order;  // [n] indices of samples in the set
  int64_t n, features;
  T scale, shift;
  T* x;  // batch-major, rows ldx apart; may be null
  int64_t ldx;
  T* panels;  // may be null; bytes are written past row n, up to a whole kGatherRows
  const float* floats = nullptr;  // [N, features]
};

// A gather is divided into blocks of 16 rows x 64 features, numbered row block by row block.
inline constexpr int64_t kGatherRows = 16, kGatherFeatures = 64;
constexpr int64_t gather_blocks(int64_t n, int64_t features) {
  return ((n + kGatherRows - 1) / kGatherRows) *
         ((features + kGatherFeatures - 1) / kGatherFeatures);
}

// Logits in panels, [n, classes].
//   dz = scale * (softmax(z) - onehot(label))
template <typename T>
struct SoftmaxXentArgs {
  const T* z;            // panels
  const int32_t* label;  // [n], each in [0, classes)
  T* dz;                 // panels; may be z; null: loss only
  int64_t n, classes;
  double scale;
  // Sums over each group of kGroup rows, not scaled: adding them up in order gives the same result
  // for any number of threads.
  double* loss;      // [groups_of(n)]
  int32_t* correct;  // [groups_of(n)]
};

// dx = keep * (sum of parts) * act'(saved), all in panels [n, features]: adds up the partial sums
// of InputGradArgs, in the order of the parts.
template <typename T>
struct CombineArgs {
  const T* parts;  // `count` of them, `stride` elements apart
  int64_t count, stride;
  const T* saved;
  T* dx;  // may be the first part
  int64_t features;
  SimdActivation act;
  const T* keep = nullptr;  // of dropout; null: 1
};

template <typename T>
struct BatchFunctions {
  void (*gather)(const GatherArgs<T>&, Range blocks);
  // Converts batch-major a[n, features] (rows lda apart) to panels and back, for a range of rows
  // and features.
  void (*to_panels)(const T* a, int64_t lda, int64_t features, T* panels, Range rows,
                    Range features_part);
  void (*from_panels)(const T* panels, int64_t features, T* a, int64_t lda, Range rows,
                      Range features_part);
  void (*softmax_xent)(const SoftmaxXentArgs<T>&, Range groups);
  // softmax of each row, in panels [n, classes]; y may be z.
  void (*softmax)(const T* z, T* y, int64_t n, int64_t classes, Range groups);
  void (*combine)(const CombineArgs<T>&, Range features, Range rows);
  // y = act(x) and dx = dy * act'(saved) on flat arrays; y may be x, dx may be dy or saved.
  void (*activate)(SimdActivation act, const T* x, T* y, int64_t count);
  void (*activation_grad)(SimdActivation act, const T* saved, const T* dy, T* dx, int64_t count);
};

template <typename T>
const BatchFunctions<T>& batch_functions();

}  // namespace ridgeline::cpu::simd
