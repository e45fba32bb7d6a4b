#pragma once

#include "ridgeline/cpu/simd/batch.h"
#include "ridgeline/cpu/simd/mlp_step.h"

// The arguments of MlpStep's phases, for its own files: mlp_step.cpp has the layout, the forward
// pass and the loss, mlp_step_backward.cpp the gradients and the updates, mlp_step_norm.cpp the
// normalisations.
namespace ridgeline::cpu::simd {

template <typename T>
struct MlpStep<T>::Frame {
  ThreadPool& pool;
  const MlpBatch<T>& batch;
  double scale;
  const MlpIteration<T>& iteration;
  const GemmFunctions<T>& gemm;
  const BatchFunctions<T>& batch_kernels;
};

template <typename T>
struct MlpStep<T>::Member {
  ThreadPool* pool;  // null for a team of one
  int index, count;
  std::byte* shared;
  std::byte* mine;

  void barrier() const {
    if (pool != nullptr) pool->barrier();
  }
  T* ours(size_t offset) const { return reinterpret_cast<T*>(shared + offset); }
  T* own(size_t offset) const { return reinterpret_cast<T*>(mine + offset); }
};

template <typename T>
struct MlpStep<T>::Chunk {
  int64_t begin, n;  // samples of the batch
  bool first, last;

  SplitLayer::Weights weights() const {
    using enum SplitLayer::Weights;
    return !first ? kept : last ? passing : split;
  }
};

}  // namespace ridgeline::cpu::simd
