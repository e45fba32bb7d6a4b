#pragma once

#include <cuda_runtime_api.h>

#include "ridgeline/cuda/plain/mixed_operand.h"
#include "ridgeline/cuda/recurrent/cell.h"

// The functions between the products of a recurrent layer, one launch for all samples of a
// timestep. State that is carried between timesteps is contiguous, [B, H]: h in T, because it is a
// factor of a product, the rest in the accumulator dtype.
namespace ridgeline::cuda::recurrent {

template <typename T>
struct ForwardArgs {
  using A = Accumulated<T>;
  Cell cell;
  Sequence sequence;
  const A* from_x;  // [B, T, gates, H]: x . w_ih^T
  // [B, vectors, H]: h . w_hh^T, which launch_gate replaces by the gates' values. Null: from_x has
  // both sums (not for gru).
  A* from_h;
  MixedIn<T> b_ih, b_hh;
  T* h;
  A* c;
  T *y, *reserve;  // reserve may be null
};

// h = h0, c = c0, or zero if they are absent; c and c0 may be null.
template <typename T>
cudaError_t launch_begin(const T* h0, const T* c0, T* h, Accumulated<T>* c, int64_t count,
                         cudaStream_t stream);
// Replaces the sums of one gate by its values, for one timestep.
template <typename T>
cudaError_t launch_gate(const ForwardArgs<T>& args, int step, int gate, cudaStream_t stream);
// A timestep's state, y and reserve. `fused`: computes the gates' values too; otherwise launch_gate
// has.
template <typename T>
cudaError_t launch_forward(const ForwardArgs<T>& args, int step, bool fused, cudaStream_t stream);

template <typename T>
struct BackwardArgs {
  using A = Accumulated<T>;
  Cell cell;
  Sequence sequence;
  const T *y, *reserve, *h0, *c0, *dy;
  A *dh, *dc;  // [B, H]; on return, dh holds the part that goes to the previous timestep directly
  T* gate_gradients;  // of all timesteps
  T* compact;         // [B, gates, H]: those of this timestep that are multiplied by w_hh
};
template <typename T>
cudaError_t launch_backward(const BackwardArgs<T>& args, int step, cudaStream_t stream);

// dh = dhT, dc = dcT, or zero; and back to the caller's gradients. Any of them may be null.
template <typename T>
cudaError_t launch_widen_state(const T* from, Accumulated<T>* to, int64_t count,
                               cudaStream_t stream);
template <typename T>
cudaError_t launch_narrow_state(const Accumulated<T>* from, T* to, int64_t count,
                                cudaStream_t stream);

}  // namespace ridgeline::cuda::recurrent
