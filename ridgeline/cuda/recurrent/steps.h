#pragma once

#include <cuda_runtime_api.h>

#include "ridgeline/cuda/plain/mixed_operand.h"
#include "ridgeline/cuda/recurrent/cell.h"

// What stands between the products of a recurrent layer, one launch for all samples of a step.
// State that goes from step to step is compact, [B, H]: h in T, for it is a product's factor, the
// rest in the accumulator dtype.
namespace ridgeline::cuda::recurrent {

template <typename T>
struct ForwardArgs {
  using A = Accumulated<T>;
  Cell cell;
  Sequence sequence;
  const A* from_x;  // [B, T, gates, H]: x . w_ih^T
  A* from_h;  // [B, vectors, H]: h . w_hh^T; gate kernels leave their values here. Null: from_x
              // has both sums (not of a gru)
  MixedIn<T> b_ih, b_hh;
  T* h;
  A* c;
  T *y, *reserve;  // reserve may be null
};

// h = h0, c = c0, or zero where there is none; c and c0 may be null.
template <typename T>
cudaError_t launch_begin(const T* h0, const T* c0, T* h, Accumulated<T>* c, int64_t count,
                         cudaStream_t stream);
// The gates' values of a step in place of their sums: one gate alone.
template <typename T>
cudaError_t launch_gate(const ForwardArgs<T>& args, int step, int gate, cudaStream_t stream);
// A step's state, y and reserve. `fused`: the gates' values too; else launch_gate made them.
template <typename T>
cudaError_t launch_forward(const ForwardArgs<T>& args, int step, bool fused, cudaStream_t stream);

template <typename T>
struct BackwardArgs {
  using A = Accumulated<T>;
  Cell cell;
  Sequence sequence;
  const T *y, *reserve, *h0, *c0, *dy;
  A *dh, *dc;         // [B, H]; dh leaves with what goes to the step before directly
  T* gate_gradients;  // of all steps
  T* compact;         // [B, gates, H]: those of this step that go through w_hh
};
template <typename T>
cudaError_t launch_backward(const BackwardArgs<T>& args, int step, cudaStream_t stream);

// dh = dhT, dc = dcT, or zero; and back to what a caller wants. Any of them may be null.
template <typename T>
cudaError_t launch_widen_state(const T* from, Accumulated<T>* to, int64_t count,
                               cudaStream_t stream);
template <typename T>
cudaError_t launch_narrow_state(const Accumulated<T>* from, T* to, int64_t count,
                                cudaStream_t stream);

}  // namespace ridgeline::cuda::recurrent
