#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "ridgeline/cuda/recurrent/persistent.h"

// A whole pass over a sequence in one launch, in which each block, or each cluster of blocks, takes
// a few samples through all timesteps and has the recurrent weights of all units in its registers
// (weight-stationary). Blocks of different samples never wait for each other, and a timestep costs
// one or two barriers of a block, or one of a cluster. Halves are multiplied by `mma`, with two
// samples per block and up to 128 units (256 of a plain RNN); fp32 by multiply-adds, with a sample
// per block of up to 128 units or two samples per cluster of up to 256.
namespace ridgeline::cuda::recurrent {

struct BatchParallelLayout {
  std::string refusal;  // why there is no layout; "" if there is one
  int places = 0;       // the padded number of hidden units: which GPU function
  int cluster = 1;      // blocks that divide the hidden units
  int samples = 1;      // per cluster
  // The blocks multiply x with w_ih themselves; otherwise from_x has the products.
  bool takes_x = false;
  size_t shared_bytes = 0;

  int blocks(int batch) const { return (batch + samples - 1) / samples * cluster; }
};

// `planes` is the number of bf16 values in an element's place: 1 for halves, 3 for fp32.
BatchParallelLayout batch_parallel_forward_layout(Cell cell, int planes, int steps, int in,
                                                  int hidden);
BatchParallelLayout batch_parallel_backward_layout(Cell cell, int planes, int hidden);

template <typename T>
struct BatchParallelForward {
  PersistentForward<T> pass;  // all samples; w_ih is [gates, H, in] with `x`
  const T* x;                 // [B, T, in] if the blocks take it; otherwise null
  int in;
};

// T is __nv_bfloat16, __half or float. `exchange` and `l2_workspace` are not used.
template <typename T>
cudaError_t launch_batch_parallel_forward(const BatchParallelForward<T>& args,
                                          const BatchParallelLayout& layout, cudaStream_t stream);
template <typename T>
cudaError_t launch_batch_parallel_backward(const PersistentBackward<T>& args,
                                           const BatchParallelLayout& layout, cudaStream_t stream);

}  // namespace ridgeline::cuda::recurrent
